"""The specs of the pods that run the proxies of Gateways and of Services on a cluster."""

from collections.abc import Mapping
from typing import Any

from headgate.admission.proxy_settings import proxy_settings
from headgate.admission.sidecar_containers import SidecarOptions, proxy_container, proxy_volumes, pull_secrets
from headgate.envoy.proxy_container import WITHDRAWAL_S


def gateway_pod(options: SidecarOptions, resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of a pod that runs the proxy of a Gateway, apart from its ServiceAccount.

    `resources` has the requests and limits of its container; if they are empty, it has the default requests of sidecars.
    When the pod ends, its proxy requests clients to close their connections, and waits until they have.
    """
    settings = proxy_settings()
    proxy = proxy_container(options, "gateway", [("preStop", ["drain"])], settings)
    secrets = pull_secrets((), options)
    return {
        **({"imagePullSecrets": secrets} if secrets else {}),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "containers": [
            {**proxy, "name": "proxy", "resources": resources or {"requests": settings.resources["requests"]}}
        ],
        "volumes": proxy_volumes(),
    }


def nginx_pod(options: SidecarOptions, image: str) -> Mapping[str, Any]:
    """Return the spec of a pod that runs nginx as the gateway of a Service; `image` has headgate and nginx.

    It has the default ServiceAccount, because nginx has no identity in the mesh. When it ends, nodes may send new connections
    for a few seconds. It has the same fields as the pod of a Gateway, so that one can replace the other by an apply.
    """
    pod = gateway_pod(options, {})
    (proxy,) = pod["containers"]
    lifecycle = {"preStop": {"exec": {"command": ["sleep", str(WITHDRAWAL_S)]}}}
    container = {**proxy, "image": image, "command": ["headgate", "gateway", "nginx"], "lifecycle": lifecycle}
    return {**pod, "serviceAccountName": "default", "containers": [container]}
