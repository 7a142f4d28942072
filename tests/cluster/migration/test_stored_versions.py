"""A later version of headgate renames a field of a kind: an upgrade stores all objects in the new version of the kind.

Both versions run as processes. The later one is a copy of this one, in which TLSConfigs have the version `v1`, with `dnsNames`
instead of `subjectNames`.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import replica
from tests.cluster.api_server import KubeApiServer
from tests.cluster.control_planes import DEADLINE_S, eventually
from tests.cluster.installation import WITHOUT_APIS, install
from tests.cluster.isolation import DEFINITIONS, remove_definition
from tests.make.objects import tls_config

import headgate

NAME = "tlsconfigs.headgate.dev"
DEFINITION = f"{DEFINITIONS}/{NAME}"
NAMES = ["website.example"]
CONVERSION = """

def _renamed(part: Object, before: str, after: str) -> Object:
    return {after if name == before else name: value for name, value in part.items()}


def _to_hub(obj: Object, _version: str) -> Object:
    return {**obj, "spec": _renamed(part(obj, "spec"), "subjectNames", "dnsNames")}


def _from_hub(obj: Object, version: str) -> Object:
    return obj if version == "v1" else {**obj, "spec": _renamed(part(obj, "spec"), "dnsNames", "subjectNames")}


def _schema(group: str, version: str) -> Schema:
    schema = tls_config(bare=not group)
    if version == "v1":
        return schema
    spec = schema["properties"]["spec"]
    spec = {**spec, "properties": _renamed(spec["properties"], "dnsNames", "subjectNames")}
    return {**schema, "properties": {**schema["properties"], "spec": spec}}
"""
UPGRADE = """
import asyncio, sys
from pathlib import Path
from tests.cluster.api_server import KubeApiServer
from tests.cluster.installation import WITHOUT_APIS, on_this_machine
from headgate.kubernetes.install.installer import Installer
root, port, webhook_port, *names = sys.argv[1:]

async def main():
    server = KubeApiServer(Path(root), int(port))
    server.webhook_port = int(webhook_port)
    async with server.client() as client:
        for name in names:
            step = getattr(Installer(client), name)
            async for obj, outcome in step(tuple(on_this_machine(server, WITHOUT_APIS))):
                print(obj["metadata"]["name"], outcome)

asyncio.run(main())
"""
"""Applies or migrates the objects of an installation, as `headgate upgrade` does before and after it waits for the replicas."""


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory with the package of the later version."""
    source = tmp_path_factory.mktemp("later")
    package = source / "headgate"
    shutil.copytree(Path(headgate.__file__).parent, package)  # with the compiled modules, which stay valid
    _edit(package / "compiler/workload_policy.py", {".spec.subject_names": ".spec.dns_names"})
    changes = {
        "subject_names: Annotated": "dns_names: Annotated",
        '"subjectNames"': '"dnsNames"',
        "\n\nKIND = Kind(": f"{CONVERSION}\n\nKIND = Kind(",
        'versions=("v1beta1",),': 'versions=("v1", "v1beta1"), conversion=Conversion(_to_hub, _from_hub),',
        "schema=lambda group, _version: tls_config(bare=not group),": "schema=_schema,",
        "MESH_CATEGORY, Kind,": "MESH_CATEGORY, Conversion, Kind,",
    }
    _edit(package / "resources/mesh/tls_config.py", changes)
    return str(source)


def _edit(path: Path, changes: Mapping[str, str]) -> None:
    text = path.read_text()
    for before, after in changes.items():
        assert before in text, f"{path.name} has changed: {before}"
        text = text.replace(before, after)
    path.write_text(text)


def upgrade(server: KubeApiServer, later: str, *steps: str) -> Sequence[str]:
    """Do steps of an upgrade with the later version; return the outcomes of all objects that each step yields."""
    command = [sys.executable, "-c", UPGRADE, server.root, server.port, server.webhook_port, *steps]
    environment = os.environ | replica.of_version(later)
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def names_in(server: KubeApiServer, version: str) -> Mapping[str, Any]:
    """Return the spec of the stored TLSConfig in a version, without the selector."""
    status, answer = server.call("GET", f"/apis/headgate.dev/{version}/namespaces/shop/tlsconfigs/website")
    assert status == 200, answer
    return {name: value for name, value in answer["spec"].items() if name != "selector"}


def stored_versions(server: KubeApiServer) -> Any:
    """Return the versions in which the API server may have stored TLSConfigs."""
    return server.call("GET", DEFINITION)[1]["status"]["storedVersions"]


def is_judged(server: KubeApiServer, version: str, generation: int) -> bool:
    """Return whether the control plane has written the status of this generation."""
    status, answer = server.call("GET", f"/apis/headgate.dev/{version}/namespaces/shop/tlsconfigs/website")
    assert status == 200, answer
    return bool(answer.get("status", {}).get("observedGeneration") == generation)


@pytest.fixture
def server(installed: KubeApiServer) -> Iterator[KubeApiServer]:
    """The API server, with the definitions of this version before and after the test."""
    asyncio.run(install(installed, WITHOUT_APIS, gateway_api=False))
    yield installed
    remove_definition(installed, NAME)
    asyncio.run(install(installed, WITHOUT_APIS, gateway_api=False))


async def test_an_upgrade_stores_objects_in_the_new_version_of_a_kind(server: KubeApiServer, later: str) -> None:
    with replica.serving(server):
        obj = tls_config("website", {"app": "website"}, *NAMES, namespace="shop")
        server.make("/apis/headgate.dev/v1beta1/namespaces/shop/tlsconfigs", obj)
        await eventually(lambda: is_judged(server, "v1beta1", 1))

        # While replicas of the version before run, which can't convert, objects stay stored in a version that they know.
        assert "tlsconfigs.headgate.dev configured" in upgrade(server, later, "apply")
        assert stored_versions(server) == ["v1beta1"]
        assert names_in(server, "v1beta1") == {"subjectNames": NAMES}

    with replica.serving(server, source=later):
        assert await eventually(lambda: names_in(server, "v1")) == {"dnsNames": NAMES}
        migrated = "tlsconfigs.headgate.dev migrated: 1 object is stored in v1"
        assert upgrade(server, later, "migrate", "migrate") == [migrated]  # nothing is left for the second one
        assert stored_versions(server) == ["v1"]
        assert names_in(server, "v1beta1") == {"subjectNames": NAMES}  # clients of the version before
        changed = {**obj, "spec": {**obj["spec"], "subjectNames": ["other.example"]}}
        path = "/apis/headgate.dev/v1beta1/namespaces/shop/tlsconfigs/website"
        current = server.call("GET", path)[1]["metadata"]["resourceVersion"]
        status, answer = server.call(
            "PUT", path, {**changed, "metadata": {**obj["metadata"], "resourceVersion": current}}
        )
        assert status == 200, answer
        await eventually(lambda: is_judged(server, "v1", 2))
    assert names_in(server, "v1") == {"dnsNames": ["other.example"]}  # no replica runs that could convert
