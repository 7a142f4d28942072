"""The calls that a TrafficTarget in audit mode would refuse, as its status shows them."""

from headgate.resources.audit_mode import RefusedCaller
from headgate.resources.meta import Value


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
