"""What a flow came to: latencies, and everything else that is counted, in two numbers that add up (`lanes`)."""

from collections.abc import Mapping

from headgate.resources.meta import Value
from headgate.telemetry import lanes
from headgate.telemetry.histogram import Buckets

NO_RESPONSE = "none"
DENIED = "denied"
"""The class of requests that access rules refused: neither successes nor failures, whatever their status."""
_GRPC_CODES = 17
_UNKNOWN = 2  # what a status outside of them is by gRPC's own rule
_SERVERS_FAULT = frozenset({2, 4, 12, 13, 14, 15})  # of gRPC's statuses, those that HTTP writes as 500 and above
_CLASSES = (
    *(f"{hundreds}xx" for hundreds in range(1, 6)),
    NO_RESPONSE,
    *(f"grpc-{status}" for status in range(_GRPC_CODES)),
    DENIED,
)
_CLASS_LANES = {name: lane for lane, name in enumerate(_CLASSES)}
# beside the classes of responses; copies have none, only whether they succeeded
SUCCEEDED, FAILED, CONNECTIONS, UNREACHED, SENT, RECEIVED, DENIED_CONNECTIONS = range(len(_CLASSES), len(_CLASSES) + 7)
DENIED_REQUESTS = _CLASS_LANES[DENIED]
MOST = 1 << 48
"""Of a lane in one report: more is no traffic, and what a broken proxy says must not stop the others."""

_BITS = lanes.BITS[lanes.LONG]
_LANE = (1 << _BITS) - 1
_FAILING = {_CLASS_LANES[name] for name in ("5xx", NO_RESPONSE, *(f"grpc-{status}" for status in _SERVERS_FAULT))}
_FAILURES = sum(_LANE << _BITS * lane for lane in (*_FAILING, FAILED))
_SUCCESSES = sum(
    _LANE << _BITS * lane for lane in (*(set(range(len(_CLASSES))) - _FAILING - {DENIED_REQUESTS}), SUCCEEDED)
)
_REFUSALS = sum(_LANE << _BITS * lane for lane in (DENIED_REQUESTS, DENIED_CONNECTIONS))
_RESPONSES = (1 << _BITS * len(_CLASSES)) - 1


class Counts(Value, frozen=True, gc=False):
    """Counts of a flow; whatever can be counted is a lane of `others`.

    Bytes and connections are of ports that are not HTTP; `unreached` are connections that no server took, which are no
    failed requests (R98). `latency` has no requests that were denied.
    """

    latency: Buckets = 0
    others: int = 0

    @classmethod
    def of(cls, counts: Mapping[int, int], latency: Buckets = 0) -> "Counts":
        """Return these counts by their lane."""
        return cls(latency, sum(min(count, MOST) << _BITS * lane for lane, count in counts.items()))

    def plus(self, more: "Counts") -> "Counts":
        """Return the sum."""
        return Counts(self.latency + more.latency, self.others + more.others)

    def minus(self, less: "Counts") -> "Counts":
        """Return what is left of a sum without one of its parts."""
        return Counts(self.latency - less.latency, self.others - less.others)

    @property
    def success(self) -> int:
        """Requests below 500; with gRPC, the status OK and what the client did wrong (D22, docs/metrics.md)."""
        return _added(self.others & _SUCCESSES)

    @property
    def failure(self) -> int:
        """All other requests, those among them that never reached a server."""
        return _added(self.others & _FAILURES)

    @property
    def is_refused(self) -> bool:
        """Whether access rules refused anything."""
        return bool(self.others & _REFUSALS)

    @property
    def denied(self) -> int:
        """Requests that access rules refused."""
        return self.count(DENIED_REQUESTS)

    @property
    def connections(self) -> int:
        """Connections that reached a server, or the proxy that refused them on its behalf."""
        return self.count(CONNECTIONS)

    @property
    def unreached(self) -> int:
        """Connections that reached none."""
        return self.count(UNREACHED)

    @property
    def denied_connections(self) -> int:
        """Those of `connections` that access rules refused."""
        return self.count(DENIED_CONNECTIONS)

    @property
    def classes(self) -> tuple[tuple[str, int], ...]:
        """Requests by the class of their response, sorted: `2xx`, `5xx`; `grpc-0`; `none` without a response."""
        found = lanes.spread(self.others & _RESPONSES, lanes.LONG)
        return tuple(sorted((_CLASSES[lane], count) for lane, count in found.items()))

    def count(self, lane: int) -> int:
        """Return what is in a lane."""
        return self.others >> _BITS * lane & _LANE


def class_lane(status: int, grpc: str = "") -> int:
    """Return the lane of a request by the status of its response, 0 without one, and gRPC's status, empty without one."""
    if grpc.isdecimal():
        return _CLASS_LANES[f"grpc-{grpc if int(grpc) < _GRPC_CODES else _UNKNOWN}"]
    return _CLASS_LANES.get(f"{status // 100}xx", _CLASS_LANES[NO_RESPONSE])


def _added(others: int) -> int:
    """Add lanes up. A number leaves the same rest as the sum of its digits when it is divided by the base less one."""
    return others % _LANE
