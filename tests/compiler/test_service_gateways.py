"""Findings about gateways behind Services depend on the host (R32, D23)."""

from typing import Any

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings

NO_NGINX = (
    "no nginx runs on one machine, where the machine's own gateway serves the Service default/web; `headgate render nginx "
    "--service web.default -o DIR --watch` keeps the configuration of an nginx of yours current"
)


def service(proxy: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "default", "annotations": {"headgate.dev/gateway": proxy}}
    spec = {"clusterIP": "127.1.0.1", "ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("proxy", "spec", "reported"),
    [
        ("envoy", {}, []),
        ("envoy", {"selector": {"app": "web"}}, []),
        ("envoy", {"clusterIP": "None"}, []),
        ("nginx", {}, [NO_NGINX]),
        ("apache", {}, ["must be envoy or nginx, not 'apache'; until then the Service default/web has no gateway"]),
    ],
)
def test_on_one_machine_the_machines_own_gateway_serves_each_service(
    proxy: str, spec: dict[str, Any], reported: list[str]
) -> None:
    obj = service(proxy, **spec)
    compiled = compile_mesh(snapshot_of({key_of(obj): obj}), Settings(gateway_pods=False))
    assert [item.message for item in compiled.report.findings] == reported
