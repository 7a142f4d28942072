"""A pod with probes for the tests of transparent sidecars, and the options of the injection."""

from collections.abc import Mapping
from typing import Any

from tests.admission.stored_view import SHOP
from tests.make.objects import Object, pod

from headgate.admission.sidecar_containers import SidecarOptions

OPTIONS = SidecarOptions(image="headgate:1", xds="headgate.headgate-system.svc:15010")
APP = {
    "name": "app",
    "ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}],
    "readinessProbe": {"httpGet": {"path": "/ready?deep=1", "port": "web"}, "periodSeconds": 1},
    "livenessProbe": {"tcpSocket": {"port": "web"}, "timeoutSeconds": 3},
}


def web_pod(*containers: Mapping[str, Any], labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """Return a stored pod of the namespace `shop`, by default with the container `APP`."""
    metadata = {"uid": "1", "labels": dict(labels or {})}
    return pod("web-1", containers=containers or [APP], namespace=SHOP, metadata=metadata, **spec)
