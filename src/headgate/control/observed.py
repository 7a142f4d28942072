"""Requests counted by the proxy: by Service port and backend, growing for ever although endpoints come and go."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.envoy import names
from headgate.local.envoy_admin import Admin
from headgate.model.refs import PortRef
from headgate.resources.meta import Value

PAGE = "/clusters?format=json"


class Observed(Value, frozen=True, kw_only=True):
    """What one backend (`namespace/name`) got of the requests to a Service port, since headgate began to count.

    `failures` are answers of 5xx, given by the application or by the proxy in its stead. `unreachable` are connections
    that an endpoint did not take; such a request goes on to another endpoint where there is one. `split` names the
    split whose groups the requests fitted; it is empty for all others.
    """

    ref: PortRef
    backend: str
    requests: int
    failures: int
    unreachable: int
    split: str = ""


class Count(NamedTuple):
    """Three counters that grow together."""

    requests: int = 0
    failures: int = 0
    unreachable: int = 0

    def since(self, earlier: "Count") -> "Count":
        """Return the growth; a counter that went back was begun anew."""
        if any(now < before for now, before in zip(self, earlier, strict=True)):
            return self
        return Count(*(now - before for now, before in zip(self, earlier, strict=True)))

    def plus(self, other: "Count") -> "Count":
        """Add up."""
        return Count(*(one + two for one, two in zip(self, other, strict=True)))


class Place(NamedTuple):
    """One endpoint in one of Envoy's clusters."""

    cluster: str
    backend: str
    address: str


class Totals:
    """Adds up what each reading brought; an endpoint that leaves takes nothing away. Pure: it is given the readings."""

    def __init__(self) -> None:
        self._last: Mapping[Place, Count] = {}
        self._totals: dict[tuple[PortRef, str, str], Count] = defaultdict(Count)

    def add(self, page: Any) -> Sequence[Observed]:
        """Take a reading (Envoy's `/clusters?format=json`) and return the totals, sorted."""
        current = dict(places(page))
        for place, count in current.items():
            ref = names.parse(place.cluster)
            if ref is not None and not names.is_mirror(place.cluster):  # copies are no user's traffic (D22)
                growth = count.since(self._last.get(place, Count()))
                key = ref, names.owner(place.cluster), place.backend
                self._totals[key] = self._totals[key].plus(growth)
        self._last = current
        return [
            Observed(ref=ref, split=split, backend=backend, **count._asdict())
            for (ref, split, backend), count in sorted(self._totals.items())
        ]


def places(page: Any) -> Iterator[tuple[Place, Count]]:
    """Yield the endpoints of a reading with their counters; Envoy leaves out what is zero."""
    for cluster in page.get("cluster_statuses") or ():
        for host in cluster.get("host_statuses") or ():
            locality = host.get("locality") or {}
            socket = (host.get("address") or {}).get("socket_address") or {}
            stats = {stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats") or ()}
            backend = f"{locality.get('region', '')}/{locality.get('zone', '')}"
            address = f"{socket.get('address', '')}:{socket.get('port_value', '')}"
            yield (
                Place(cluster.get("name", ""), backend, address),
                Count(stats.get("rq_total", 0), stats.get("rq_error", 0), stats.get("cx_connect_fail", 0)),
            )


class Counters:
    """Reads one proxy."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._totals = Totals()

    async def read(self) -> Sequence[Observed]:
        """Ask the proxy and return the totals. Raises ProxyError when it does not answer."""
        return self._totals.add(await self._admin.get_json(PAGE))
