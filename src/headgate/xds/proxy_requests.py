"""The calls of a proxy's container to the control plane, beside its xDS stream. A container imports this module at its start."""

from headgate.resources.meta import Value

HAS_ENDED = "/headgate.v1.JobSidecars/HasApplicationEnded"
WAIT_FOR_REPORT = "/headgate.v1.JobSidecars/WaitForReport"


class Question(Value, frozen=True, kw_only=True):
    """The request of `HAS_ENDED`, as JSON: the node ID of the sidecar."""

    node: str


class SidecarAnswer(Value, frozen=True, kw_only=True):
    """The response of `HAS_ENDED`, as JSON: whether all other containers of the pod have ended and will not restart."""

    ended: bool


class ReportRequest(Value, frozen=True, kw_only=True):
    """The request of `WAIT_FOR_REPORT`, as JSON: a node ID, and a time in epoch seconds by the proxy's clock.

    The response is empty, and comes when the proxy has reported its requests until that time.
    """

    node: str
    since: float
