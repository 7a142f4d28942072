"""The stored bootstrap of proxies on a cluster is what the renderer returns. `make golden` writes it."""

import json
from typing import Any

import pytest

from headgate.envoy.bootstrap import XdsAddress, bootstrap, roots_source, token_source
from headgate.envoy.pod_bootstrap import DIRECTORY, HOST, NODE, PORT, SECRETS, STORED, pod_bootstrap


def rendered(node_id: str, host: str, port: int, *, directory: str, secrets: str) -> dict[str, Any]:
    """Return the content of the files that a proxy needs, by their paths below `directory`."""
    content = bootstrap(
        node_id=node_id,
        admin_socket=f"{directory}/admin.sock",
        xds=XdsAddress(host=host, port=port, name=host, roots=f"{directory}/sources/roots.json"),
        token=f"{directory}/sources/token.json",
    )
    files = {
        "bootstrap.json": content,
        "sources/token.json": token_source(f"{secrets}/token"),
        "sources/roots.json": roots_source(f"{secrets}/roots.pem"),
    }
    return {path: json.loads(text) for path, text in files.items()}


def test_the_golden_bootstrap_of_pods_is_that_of_the_renderer(pytestconfig: pytest.Config) -> None:
    files = rendered(NODE, HOST, PORT, directory=DIRECTORY, secrets=SECRETS)
    text = json.dumps(files, indent=1, sort_keys=True) + "\n"
    if pytestconfig.getoption("--update-golden"):
        STORED.write_text(text)
    assert STORED.read_text() == text


def test_a_pod_gets_its_node_id_its_directories_and_the_address_of_the_control_plane() -> None:
    places = {"directory": "/run/headgate", "secrets": '/run/"secrets"'}
    files = pod_bootstrap("sidecar/shop/web-1", "headgate-xds.headgate-system.svc:15010", **places)
    expected = rendered("sidecar/shop/web-1", "headgate-xds.headgate-system.svc", 15010, **places)
    assert {path: json.loads(text) for path, text in files.items()} == expected
