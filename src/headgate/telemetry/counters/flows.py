"""Flows: traffic from one peer to another, the unit of every metric (R80 to R107, D20, D22)."""

from collections.abc import Mapping
from typing import Protocol

from headgate.resources.meta import Value
from headgate.telemetry.counters.counts import Counts


class Peer(Value, frozen=True, kw_only=True, order=True, gc=False, cache_hash=True):
    """One end of a flow: a `pod` (`namespace/name`), or `outside`: `gateway`, an address or an identity.

    Both are empty for the destination of requests that had no endpoint.
    """

    pod: str = ""
    outside: str = ""


NO_PEER = Peer()
GATEWAY = Peer(outside="gateway")


class Flow(Value, frozen=True, kw_only=True, order=True, gc=False, cache_hash=True):
    """Traffic from one peer to another. `service` (`namespace/name`) and `port` are what the client called, if known.

    `backend` is the Service whose endpoint answered: with a split, another one than `service`. `target` is the port of the
    destination pod, 0 if unknown. `copy`: copies of requests, which are no successes or failures of users (D22).
    `secured`: over mutual TLS.
    """

    source: Peer
    destination: Peer
    service: str = ""
    port: int = 0
    backend: str = ""
    target: int = 0
    copy: bool = False
    secured: bool = False


class Arrived(Value, frozen=True, kw_only=True):
    """The counts of what each pod (`namespace/name`) received: requests of users, and copies."""

    requests: Mapping[str, Counts]
    copies: Mapping[str, Counts]


class Reading(Value, frozen=True, kw_only=True):
    """The flows of the `window` seconds before `end` (seconds since the epoch). `cut` names what is missing, for users.

    `arrived` is the sum of `flows` by destination pod, if the source has it at hand.
    """

    end: float
    window: float
    flows: Mapping[Flow, Counts]
    arrived: Arrived | None = None
    cut: tuple[str, ...] = ()


class Source(Protocol):
    """A source of readings: the proxies' own reports, or a Prometheus that scrapes headgate."""

    async def read(self, seconds: float) -> Reading:
        """Return a reading of the last `seconds` (R85). Raises TelemetryError if there is none now."""
