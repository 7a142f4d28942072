"""Access rules of workloads, as immutable values."""

from headgate.model.requests import Match
from headgate.resources.meta import Key, Value


class RequestRule(Value, frozen=True, kw_only=True):
    """An access rule that allows HTTP requests which fit `match`; `name` is `group/match` of an HTTPRouteGroup."""

    name: str
    match: Match


class ConnectionRule(Value, frozen=True, kw_only=True):
    """An access rule of a grant for non-HTTP ports: it allows connections to `ports`.

    `name` is that of the TCPRoute. `ports` has those of the workload, or of Services that forward to it; empty means all.
    """

    name: str
    ports: tuple[int, ...] = ()


class Grant(Value, frozen=True, kw_only=True):
    """The permissions that a TrafficTarget (`origin`) gives to the identities `sources` (SPIFFE IDs).

    `port` limits the permissions to one port of the workload; 0 means all. `requests` and `connections` have rules.
    """

    origin: Key
    sources: tuple[str, ...]
    port: int = 0
    requests: tuple[RequestRule, ...] = ()
    connections: tuple[ConnectionRule, ...] = ()


class Access(Value, frozen=True, kw_only=True):
    """The authorization of a workload: open to every caller, or `closed` to all callers without a grant.

    An `audited` workload is open, and the requests that it would refuse if it were closed are counted.
    """

    closed: bool = False
    grants: tuple[Grant, ...] = ()
    audited: bool = False


OPEN = Access()
