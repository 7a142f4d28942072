"""The node IDs of proxies, and the ports and the user that all sidecars have. It imports nothing: see `headgate.cli.sidecar`."""

SIDECAR = "sidecar"  # prefix of the node IDs of sidecars: sidecar/<namespace>/<pod>
GATEWAY = "gateway"  # prefix of the node IDs of gateways on a cluster: gateway/<pod>
OUTBOUND_PORT = 15001  # a sidecar's port for redirected outbound connections or for its HTTP proxy
INBOUND_PORT = 15006  # a transparent sidecar's port for redirected inbound connections
PROBE_PORT = 15020  # a proxy's port for the kubelet's health checks
DEFAULT_USER = (
    1337  # the user of gateways, and of sidecars that `headgate redirect` serves; see `admission.proxy_users`
)
PROXY_MARK = 1337  # of the packets of sidecars that can't have a user or group of their own


def pod_of(node_id: str) -> str:
    """Return the pod (`namespace/name`) of a sidecar; empty for a gateway."""
    kind, _, pod = node_id.partition("/")
    return pod if kind == SIDECAR else ""
