"""Flows: the traffic from one peer to another, the unit of every traffic metric (R80 to R107, D20, D22)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from headgate.resources.meta import Value
from headgate.telemetry.counters.counts import Counts

SWEEP_FROM = 1000  # Below this number of flows, unused numbers are not freed.
PART = 1000  # Flows in one encoded part of a checkpoint; when a flow changes, its part is encoded again.


class Peer(Value, frozen=True, kw_only=True, order=True, gc=False, cache_hash=True):
    """One end of a flow: a `pod` (`namespace/name`), or `outside`, which is `gateway`, an address or an identity.

    Both are empty for the destination of requests that reached no endpoint.
    """

    pod: str = ""
    outside: str = ""


NO_PEER = Peer()
GATEWAY = Peer(outside="gateway")


class Flow(Value, frozen=True, kw_only=True, order=True, gc=False, cache_hash=True):
    """Traffic from one peer to another. The client called `service` (`namespace/name`) and `port`, if known.

    `backend` is the Service with the endpoint that answered; with a split it differs from `service`. `target` is the
    port of the destination pod, 0 if unknown. `copy` is True for mirrored copies, which do not count as users' requests
    (D22). `secured` is True for traffic over mutual TLS.
    """

    source: Peer
    destination: Peer
    service: str = ""
    port: int = 0
    backend: str = ""
    target: int = 0
    copy: bool = False
    secured: bool = False


class PodTotals(Value, frozen=True, kw_only=True):
    """The sums of received traffic by pod (`namespace/name`): requests of users, and mirrored copies."""

    requests: Mapping[str, Counts]
    copies: Mapping[str, Counts]


def totals_by_receiver(flows: Mapping[Flow, Counts]) -> PodTotals:
    """Return the sums of received traffic by pod."""
    requests: dict[str, Counts] = defaultdict(Counts)
    copies: dict[str, Counts] = defaultdict(Counts)
    for flow, counts in flows.items():
        if pod := flow.destination.pod:
            sums = copies if flow.copy else requests
            sums[pod] = sums[pod].plus(counts)
    return PodTotals(requests=requests, copies=copies)


def unreached_by_sender(flows: Mapping[Flow, Counts]) -> Mapping[str, int]:
    """Return the number of requests and connections that reached no pod, by the pod that sent them. Copies do not count."""
    by_sender: dict[str, int] = defaultdict(int)
    for flow, counts in flows.items():
        if flow.destination == NO_PEER and flow.source.pod and not flow.copy:
            by_sender[flow.source.pod] += counts.failure + counts.unreached
    return by_sender


class Reading(Value, frozen=True, kw_only=True):
    """The flows of the `window` seconds before `end` (seconds since the epoch).

    `cut` has messages for users about missing counts. `arrived` has the sums of `flows` by destination pod, if the
    source has them.
    """

    end: float
    window: float
    flows: Mapping[Flow, Counts]
    arrived: PodTotals | None = None
    cut: tuple[str, ...] = ()


class Source(Protocol):
    """A source of readings: the proxies' own reports, or a Prometheus that scrapes headgate."""

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        """Return a reading of the last `seconds` (R85), or of those before `end` (seconds since the epoch).

        Raises NoCounts if there are no counts of that time, and TelemetryError if no reading is available.
        """


class FlowNumbers:
    """Assigns a number to each of at most `most` flows.

    Time buckets store numbers; unused numbers are assigned again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sweep_above = min(SWEEP_FROM, most - 1)
        self._numbers: dict[Flow, int] = {}
        self._names: list[Flow | None] = []
        self._free: list[int] = []
        self._encoded: dict[int, bytes] = {}

    def number(self, flow: Flow) -> int | None:
        """Return the number of a flow; None if there are too many flows."""
        number = self._numbers.get(flow)
        if number is not None or len(self._numbers) >= self._most:
            return number
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._names)
            self._names.append(None)
        self._name(number, flow)
        return number

    @property
    def is_crowded(self) -> bool:
        """Whether the number of flows has doubled since the last sweep, so that half may be unused."""
        return len(self._numbers) > self._sweep_above

    def sweep(self, used: set[int]) -> None:
        """Free all numbers that are not in `used`."""
        for flow, number in [entry for entry in self._numbers.items() if entry[1] not in used]:
            del self._numbers[flow]
            self._free.append(number)
            self._name(number, None)
        self._sweep_above = min(SWEEP_FROM + 2 * len(self._numbers), self._most - 1)

    def names(self) -> Sequence[Flow | None]:
        """Return a copy of all flows, indexed by number; None for free numbers."""
        return tuple(self._names)

    def encoded(self) -> tuple[bytes, ...]:
        """Return all flows in parts as MessagePack; unchanged parts come from a cache."""
        firsts = range(0, len(self._names), PART)
        for first in firsts:
            if first not in self._encoded:
                self._encoded[first] = msgspec.msgpack.encode(self._names[first : first + PART])
        return tuple(self._encoded[first] for first in firsts)

    def restore(self, parts: Iterable[bytes]) -> None:
        """Restore the numbers that an earlier headgate saved (`encoded`)."""
        self._names = [flow for part in parts for flow in msgspec.msgpack.decode(part, type=list[Flow | None])]
        self._numbers = {flow: number for number, flow in enumerate(self._names) if flow}
        self._free = [number for number, flow in enumerate(self._names) if not flow]

    def _name(self, number: int, flow: Flow | None) -> None:
        self._names[number] = flow
        self._encoded.pop(number - number % PART, None)
        if flow:
            self._numbers[flow] = number
