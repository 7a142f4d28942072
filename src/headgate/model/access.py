"""Access rules of workloads, as immutable values."""

from headgate.model.requests import Match
from headgate.resources.meta import Key, Value

ANY_CALLER = "*"
"""The source of a grant for all callers: those with an identity, and those in plaintext."""


def source_includes(source: str, caller: str) -> bool:
    """Return whether a source of a grant includes a caller: a SPIFFE ID, or an empty text for plaintext.

    A source is a SPIFFE ID, the beginning of SPIFFE IDs followed by `*`, or ANY_CALLER. No SPIFFE ID contains `*`. The caller may be such a beginning
    too: then all its callers must be included.
    """
    return source == caller or (source.endswith("*") and caller.startswith(source[:-1]))


class RequestRule(Value, frozen=True, kw_only=True):
    """An access rule for HTTP requests that fit `match`. `name` is `group/match`, or `rules[0]` of an XAuthorizationPolicy."""

    name: str
    match: Match


class ConnectionRule(Value, frozen=True, kw_only=True):
    """An access rule of a grant for non-HTTP ports: it allows connections to `ports`.

    `name` is that of the TCPRoute, or `rules[0]` of an XAuthorizationPolicy. `ports` has those of the workload, or of Services that forward to it; empty means all.
    """

    name: str
    ports: tuple[int, ...] = ()


class Grant(Value, frozen=True, kw_only=True):
    """The permissions that a TrafficTarget or XAuthorizationPolicy (`origin`) gives to the callers `sources` (`source_includes`).

    `port` limits the permissions to one port of the workload; 0 means all. `requests` and `connections` have rules.
    """

    origin: Key
    sources: tuple[str, ...]
    port: int = 0
    requests: tuple[RequestRule, ...] = ()
    connections: tuple[ConnectionRule, ...] = ()

    def includes(self, caller: str) -> bool:
        """Return whether a source includes a caller: a SPIFFE ID, or an empty text for plaintext."""
        return any(source_includes(source, caller) for source in self.sources)


class Access(Value, frozen=True, kw_only=True):
    """The authorization of a workload: open to every caller, or `closed` to all callers without a grant.

    An `audited` workload is open, and the requests that it would refuse if it were closed are counted.
    """

    closed: bool = False
    grants: tuple[Grant, ...] = ()
    audited: bool = False


OPEN = Access()
