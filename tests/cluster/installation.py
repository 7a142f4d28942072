"""An installation of headgate on an API server without pods: its Services name this machine."""

import json
from collections.abc import Iterator
from typing import Any

from tests.cluster.api_server import READY_S, KubeApiServer
from tests.make.gateway_definitions import gateway_api_definitions
from tests.make.objects import Object

from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.kubernetes.names import NAMESPACE

VALUES = Values(
    image="headgate:1", budget_version="policy/v1beta1", options={"custom_metrics": "true", "external_metrics": "true"}
)
WITHOUT_APIS = Values(image="headgate:1", budget_version="policy/v1beta1", options={"aggregated_apis": ""})
"""An installation without APIServices: each change to one costs the API server half a second of processor time."""
SYSTEM = f"/api/v1/namespaces/{NAMESPACE}"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/headgate"


async def install(server: KubeApiServer, values: Values = VALUES) -> None:
    """Apply the objects of an installation and the Gateway API's definitions."""
    async with server.client() as client:
        async for _ in Installer(client).apply((*gateway_api_definitions(), *on_this_machine(server, values))):
            pass


def on_this_machine(server: KubeApiServer, values: Values) -> Iterator[Object]:
    """Yield the objects of an installation whose webhooks the API server calls at `server.webhook_port` of this machine.

    While no replica listens there, each call fails at once.
    """
    for obj in manifests(values):
        written: Any = json.loads(json.dumps(obj).replace('"port": 443', f'"port": {server.webhook_port}'))
        if obj["kind"] == "Service":
            ports = [{**port, "port": server.webhook_port} for port in written["spec"]["ports"][-1:]]
            written["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
        for hook in written.get("webhooks", ()):
            # After its own limit, a webhook that fails open would accept a mistake.
            hook["timeoutSeconds"] = READY_S // 3
        yield written


def run_pod(server: KubeApiServer, name: str) -> None:
    """Create the pod of a replica unless it exists; no kubelet runs it."""
    container = {"name": "headgate", "image": "headgate"}
    status, answer = server.call(
        "POST", f"{SYSTEM}/pods", {"metadata": {"name": name}, "spec": {"containers": [container]}}
    )
    assert status in {201, 409}, answer


def has_bundle(server: KubeApiServer) -> bool:
    """Return whether a replica has written its roots into the configuration of the webhooks."""
    _, configuration = server.call("GET", CONFIGURATION)
    return all("caBundle" in hook["clientConfig"] for hook in configuration["webhooks"])
