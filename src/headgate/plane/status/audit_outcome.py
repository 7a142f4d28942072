"""The calls that a TrafficTarget in audit mode would refuse, as its status shows them."""

from headgate.resources.call_records import CallProtocol
from headgate.resources.meta import Value
from headgate.resources.smi.traffic_target import RefusalReason


class RefusedCaller(Value, frozen=True, kw_only=True):
    """The `calls` (requests or connections) of one caller to a port that an audit would refuse.

    `caller` is a ServiceAccount as `namespace/name` or, for plaintext, a pod or an address.
    """

    caller: str
    port: int
    protocol: CallProtocol
    calls: int
    reason: RefusalReason

    def __str__(self) -> str:
        port = f"port {self.port}" if self.port else "ports of no Service"
        return f"{self.caller} to {port} {self.calls} ({self.reason})"


class AuditOutcome(Value, frozen=True, kw_only=True):
    """The callers that an audit would refuse, those with most calls first.

    `since` is the begin of the audit in seconds since the epoch; 0.0 before the first call.
    """

    since: float = 0.0
    callers: tuple[RefusedCaller, ...] = ()

    @property
    def calls(self) -> int:
        """How many calls all callers made together."""
        return sum(caller.calls for caller in self.callers)
