"""An installation of headgate on an API server without pods: its Services name this machine."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.cluster.api_server import READY_S, KubeApiServer
from tests.make.gateway_definitions import gateway_api_definitions
from tests.make.objects import Object, container, headgate_keys

from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests, revision_manifests
from headgate.kubernetes.names import NAMESPACE

VALUES = Values(
    image="headgate:1", budget_version="policy/v1beta1", options={"custom_metrics": "true", "external_metrics": "true"}
)
WITHOUT_APIS = Values(image="headgate:1", budget_version="policy/v1beta1", options={"aggregated_apis": ""})
"""An installation without APIServices: each change to one costs the API server half a second of processor time."""
SYSTEM = f"/api/v1/namespaces/{NAMESPACE}"
REVISION_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/headgate-rev-"
SIDECAR = "headgate-sidecar"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/headgate"


async def install(server: KubeApiServer, values: Values = VALUES, *, gateway_api: bool = True) -> None:
    """Apply the objects of an installation and the Gateway API's definitions.

    These take the API server two thirds of the processor time of an installation without APIServices, 3.5 of 5.4 s.
    """
    others = gateway_api_definitions() if gateway_api else ()
    async with server.client() as client:
        async for _ in Installer(client).apply((*others, *on_this_machine(server, values))):
            pass


def on_this_machine(server: KubeApiServer, values: Values) -> Iterator[Object]:
    """Yield the objects of an installation whose webhooks the API server calls at `server.webhook_port` of this machine.

    While no replica listens there, each call fails at once.
    """
    yield from _with_webhooks_at(server.webhook_port, manifests(values))


def revision_on_this_machine(name: str, port: int) -> Iterator[Object]:
    """Yield the objects of a revision whose webhooks the API server calls at a port of this machine."""
    yield from _with_webhooks_at(port, revision_manifests(VALUES, name))


def _with_webhooks_at(number: int, objects: Iterable[Mapping[str, Any]]) -> Iterator[Object]:
    for obj in objects:
        written: Any = json.loads(json.dumps(obj).replace('"port": 443', f'"port": {number}'))
        if obj["kind"] == "Service":
            ports = [{**port, "port": number} for port in written["spec"]["ports"][-1:]]
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


def has_bundle(server: KubeApiServer, revision: str = "") -> bool:
    """Return whether a replica, of the default revision or another one, has written its roots into its webhooks."""
    path = f"{REVISION_CONFIGURATIONS}{revision}" if revision else CONFIGURATION
    _, configuration = server.call("GET", path)
    return all("caBundle" in hook["clientConfig"] for hook in configuration["webhooks"])


def reviews(server: KubeApiServer) -> bool:
    """Return whether the API server calls the replica's webhooks: it learns of roots and of hooks later than it stores them.

    A split that is its own backend is converted first, and then rejected (R18).
    """
    split = {
        "apiVersion": "split.smi-spec.io/v1alpha1",
        "kind": "TrafficSplit",
        "metadata": {"name": "reviewed", "namespace": "default"},
        "spec": {"service": "reviewed", "backends": [{"service": "reviewed", "weight": 1}]},
    }
    _, answer = server.call(
        "POST", "/apis/split.smi-spec.io/v1alpha1/namespaces/default/trafficsplits?dryRun=All", split
    )
    return "is both the root and a backend" in str(answer)


def injected_image(server: KubeApiServer, namespace: str = "default") -> str:
    """Return the image of the sidecar that a new pod gets now; an empty string while it gets none.

    As with `reviews`, the API server learns of the roots of this webhook later than it stores them, and of a namespace's labels.
    """
    metadata = {"name": "injected", "annotations": headgate_keys(inject="true")}
    body = {"metadata": metadata, "spec": {"serviceAccountName": "default", "containers": [container(image="web")]}}
    _, answer = server.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    return sidecar_image(answer)


def sidecar_image(pod: Mapping[str, Any]) -> str:
    """Return the image of a pod's sidecar; an empty string if it has none."""
    containers = pod.get("spec", {}).get("containers", ())
    return next((each["image"] for each in containers if each["name"] == SIDECAR), "")
