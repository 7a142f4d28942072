"""The pods that run the proxies of Gateways on a cluster, and their ports."""

from headgate.resources.meta import Value

_LOWEST_UNPRIVILEGED_PORT = 1024
_PRIVILEGED_PORT_OFFSET = 61_000  # above Linux's range of ephemeral ports


class GatewayPod(Value, frozen=True, kw_only=True):
    """A pod on a cluster that runs the proxy of one Gateway or of one Service (`namespace/name`).

    It is in `headgate-system`. The proxy of a Service serves clients of the Service that have no sidecar. `sampling` is the
    share of traces that it begins (`model.traces`); None means that of the mesh.
    """

    name: str
    gateway: str = ""
    service: str = ""
    uid: str = ""
    sampling: int | None = None


def gateway_pod_port(port: int) -> int:
    """Return the port on which the pods of a Gateway or a Service listen for a port of it.

    They have no privileges, so they can't listen on a port below 1024.
    """
    return port if port >= _LOWEST_UNPRIVILEGED_PORT else port + _PRIVILEGED_PORT_OFFSET
