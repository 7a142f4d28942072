"""The counters of a flow in two packed integers: a latency histogram, and all other counters."""

from collections.abc import Iterable, Mapping

from headgate.resources.meta import Value
from headgate.telemetry.counters import packed_counters
from headgate.telemetry.counters.histogram import Buckets

NO_RESPONSE = "none"
DENIED = "denied"
"""The class of requests that access rules denied: neither successes nor failures, whatever their status."""
_GRPC_CODES = 17
_GRPC_UNKNOWN = 2  # gRPC's code UNKNOWN, which also counts statuses that gRPC does not define.
_GRPC_SERVER_FAULTS = frozenset({2, 4, 12, 13, 14, 15})  # The codes that map to HTTP statuses of 500 and above.
_CLASSES = (
    *(f"{hundreds}xx" for hundreds in range(1, 6)),
    NO_RESPONSE,
    *(f"grpc-{status}" for status in range(_GRPC_CODES)),
    DENIED,
)
_CLASS_INDEXES = {name: index for index, name in enumerate(_CLASSES)}
# Indexes of the counters after the response classes. SUCCEEDED and FAILED count mirrored copies, which have no class.
SUCCEEDED, FAILED, CONNECTIONS, UNREACHED, SENT, RECEIVED, DENIED_CONNECTIONS, AUDITED = range(
    len(_CLASSES), len(_CLASSES) + 8
)
# UNANSWERED counts requests that ended with an attempt in which no program answered. UNCONNECTED and BROKEN_OFF count all
# such attempts, also those that were repeated: without a connection, and without a response on a connection.
# UNSENT counts the requests that no server received, because none was connected: their response came from the client's proxy.
UNANSWERED, UNCONNECTED, BROKEN_OFF, UNSENT = range(AUDITED + 1, AUDITED + 5)
DENIED_REQUESTS = _CLASS_INDEXES[DENIED]
LARGEST_GROWTH = 1 << 48
"""The limit of a counter's growth in one report.

A larger value is a proxy's error, and would overflow into other counters.
"""

_BITS = packed_counters.BITS[packed_counters.WIDE]
BEYOND_REQUESTS = 1 << _BITS * CONNECTIONS
"""Packed counters below this have requests only: no connections, bytes or attempts, and none that were audited or not sent."""
_ONE_COUNTER = (1 << _BITS) - 1
_FAILING = {
    _CLASS_INDEXES[name] for name in ("5xx", NO_RESPONSE, *(f"grpc-{status}" for status in _GRPC_SERVER_FAULTS))
}
_SUCCEEDING = set(range(len(_CLASSES))) - _FAILING - {DENIED_REQUESTS}
_CLIENT_FAULTS = {"4xx", *(f"grpc-{status}" for status in set(range(1, _GRPC_CODES)) - _GRPC_SERVER_FAULTS)}


def _mask(*indexes: int) -> int:
    return sum(_ONE_COUNTER << _BITS * index for index in indexes)


_SUCCESSES = _mask(*_SUCCEEDING, SUCCEEDED)
_FAILURES = _mask(*_FAILING, FAILED)
_CLIENT_ERRORS = _mask(*map(_CLASS_INDEXES.__getitem__, _CLIENT_FAULTS))
_ATTEMPTS = _mask(UNCONNECTED, BROKEN_OFF)
_DENIALS = _mask(DENIED_REQUESTS, DENIED_CONNECTIONS)
_RESPONSES = _mask(*range(len(_CLASSES)))


class Counts(Value, frozen=True, gc=False):
    """Counts of a flow. `latency` is a histogram without denied requests; `counters` are wide packed counters.

    Bytes and connections are counted only on ports that are not HTTP. Connections that no server accepted are
    `unreached`, not failed requests (R98).
    """

    latency: Buckets = 0
    counters: int = 0

    @classmethod
    def of(cls, counts: Mapping[int, int], latency: Buckets = 0) -> "Counts":
        """Return the `Counts` with these values by counter index, each limited to `LARGEST_GROWTH`."""
        return cls(latency, sum(min(count, LARGEST_GROWTH) << _BITS * index for index, count in counts.items()))

    def plus(self, more: "Counts") -> "Counts":
        """Return the sum of both counts."""
        return Counts(self.latency + more.latency, self.counters + more.counters)

    def minus(self, less: "Counts") -> "Counts":
        """Return the difference; no counter of `less` may be larger than the same counter of these counts."""
        return Counts(self.latency - less.latency, self.counters - less.counters)

    @property
    def success(self) -> int:
        """Responses with a status below 500; for gRPC, OK and client errors (D22, docs/tasks/metrics.md)."""
        return _total(self.counters & _SUCCESSES)

    @property
    def failure(self) -> int:
        """Server errors (HTTP status 500 and above, gRPC server errors), and requests that reached no server."""
        return _total(self.counters & _FAILURES)

    @property
    def client_errors(self) -> int:
        """Responses that blame the client: a status of 400 to 499, and gRPC's client errors. They are successes too (D22)."""
        return _total(self.counters & _CLIENT_ERRORS)

    @property
    def attempts(self) -> int:
        """Attempts at a server in which no program answered. Requests that were repeated elsewhere have such attempts too."""
        return _total(self.counters & _ATTEMPTS)

    @property
    def is_denied(self) -> bool:
        """Whether access rules denied a request or a connection."""
        return bool(self.counters & _DENIALS)

    @property
    def denied(self) -> int:
        """Requests that access rules denied."""
        return self.count(DENIED_REQUESTS)

    @property
    def connections(self) -> int:
        """Connections that reached a server, and connections that the server's proxy denied."""
        return self.count(CONNECTIONS)

    @property
    def unreached(self) -> int:
        """Connections that reached no server."""
        return self.count(UNREACHED)

    @property
    def denied_connections(self) -> int:
        """Connections that access rules denied; they are part of `connections`."""
        return self.count(DENIED_CONNECTIONS)

    @property
    def audited(self) -> int:
        """Allowed requests that access rules would deny without audit mode; each has its class too."""
        return self.count(AUDITED)

    @property
    def classes(self) -> tuple[tuple[str, int], ...]:
        """Requests by the class of their response, sorted: `2xx`, `5xx`; `grpc-0`; `none` without a response."""
        by_index = packed_counters.by_index(self.counters & _RESPONSES, packed_counters.WIDE)
        return tuple(sorted((_CLASSES[index], count) for index, count in by_index.items()))

    def count(self, index: int) -> int:
        """Return the value of the counter `index`, for example `CONNECTIONS`."""
        return self.counters >> _BITS * index & _ONE_COUNTER


def sum_of(several: Iterable[Counts]) -> Counts:
    """Return the sum of some counts."""
    total = Counts()
    for counts in several:
        total = total.plus(counts)
    return total


def class_index(status: int, grpc: str = "") -> int:
    """Return the counter index of a response's class.

    `status` is the HTTP status, 0 without a response. `grpc` is the gRPC status, empty for other protocols.
    """
    if grpc.isdecimal():
        return _CLASS_INDEXES[f"grpc-{grpc if int(grpc) < _GRPC_CODES else _GRPC_UNKNOWN}"]
    return _CLASS_INDEXES.get(f"{status // 100}xx", _CLASS_INDEXES[NO_RESPONSE])


def is_failure(response_class: str) -> bool:
    """Return whether responses of a class, such as `5xx` or `grpc-14`, count as failures."""
    return _CLASS_INDEXES[response_class] in _FAILING


def _total(counters: int) -> int:
    """Return the sum of all counters: in base 2^64, a number and the sum of its digits are equal modulo 2^64 - 1."""
    return counters % _ONE_COUNTER
