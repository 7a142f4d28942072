"""The node IDs of proxies, and the ports, the user and the directory that all sidecars have."""

from headgate.resources.meta import SYSTEM_NAMESPACE

SIDECAR = "sidecar"  # prefix of the node IDs of sidecars: sidecar/<namespace>/<pod>
GATEWAY = "gateway"  # prefix of the node IDs of gateways on a cluster: gateway/<pod>
OUTBOUND_PORT = 15001  # a sidecar's port for redirected outbound connections or for its HTTP proxy
INBOUND_PORT = 15006  # a transparent sidecar's port for redirected inbound connections
PROBE_PORT = 15020  # a proxy's port for the kubelet's health checks
TRANSPARENT_UID = 1337  # the user of a transparent sidecar; its connections are not redirected
DIRECTORY = "/run/headgate"  # the directory of a proxy's files in its container


def pod_of(node_id: str) -> str:
    """Return the pod (`namespace/name`) of a sidecar; empty for a gateway."""
    kind, _, pod = node_id.partition("/")
    return pod if kind == SIDECAR else ""


def namespaced_name(node_id: str) -> tuple[str, str]:
    """Return a proxy's namespace and name for users: those of its pod; a gateway is in `headgate-system`."""
    namespace, _, name = pod_of(node_id).partition("/")
    return (namespace, name) if name else (SYSTEM_NAMESPACE, node_id.removeprefix(f"{GATEWAY}/"))
