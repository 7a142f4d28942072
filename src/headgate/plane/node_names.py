"""The names of proxies for users."""

from headgate.envoy.node_ids import GATEWAY, pod_of
from headgate.resources.meta import SYSTEM_NAMESPACE


def namespaced_name(node_id: str) -> tuple[str, str]:
    """Return a proxy's namespace and name for users: those of its pod; a gateway is in `headgate-system`."""
    namespace, _, name = pod_of(node_id).partition("/")
    return (namespace, name) if name else (SYSTEM_NAMESPACE, node_id.removeprefix(f"{GATEWAY}/"))
