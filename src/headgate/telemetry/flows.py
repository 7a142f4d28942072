"""What went from whom to whom: the unit of every metric (004; R80 to R107, D20, D22)."""

from collections.abc import Mapping
from typing import Protocol

from headgate.resources.meta import Value
from headgate.telemetry.counts import Counts


class Peer(Value, frozen=True, kw_only=True, order=True, gc=False, cache_hash=True):
    """One end of a flow: a pod (`namespace/name`), or `outside`, somebody who is none: `gateway`, or an address.

    Both are empty for a destination that no request reached, because there was no endpoint.
    """

    pod: str = ""
    outside: str = ""


NOBODY = Peer()
GATEWAY = Peer(outside="gateway")


class Flow(Value, frozen=True, kw_only=True, order=True, gc=False, cache_hash=True):
    """Traffic from one peer to another. `service` (`namespace/name`) and `port` are what the client called, if it did.

    `backend` is the Service whose endpoint answered: another one than `service` where a split decided. `target` is the
    destination pod's port, 0 where it is not known. `copy`: these are copies of requests, which are no successes or
    failures of users (D22). `secured`: it went by mutual TLS.
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
    """What pods (`namespace/name`) received: requests of users, and copies."""

    requests: Mapping[str, Counts]
    copies: Mapping[str, Counts]


class Reading(Value, frozen=True, kw_only=True):
    """What happened in the `window` seconds before `end` (seconds since the epoch). `cut` says what was left out, in words.

    `arrived` is the sum of `flows` by destination, from a source that has it.
    """

    end: float
    window: float
    flows: Mapping[Flow, Counts]
    arrived: Arrived | None = None
    cut: tuple[str, ...] = ()


class Source(Protocol):
    """Where the numbers are from: the proxies' own reports, or a Prometheus that scrapes them."""

    async def read(self, seconds: float) -> Reading:
        """Return the last `seconds` (R85). Raises TelemetryError when nothing can be said now."""
