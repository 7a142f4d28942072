"""Requests counted by the proxies: by Service port and backend, growing for ever although endpoints come and go."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.envoy import names
from headgate.errors import ProxyError
from headgate.model.refs import PortRef
from headgate.resources.meta import Value
from headgate.standalone.proxies.admin import Admin

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
    """Adds up what each reading brought; an endpoint or a proxy that leaves takes nothing away. Pure: it is given them."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[Place, Count]] = {}
        self._totals: dict[tuple[PortRef, str, str], Count] = defaultdict(Count)

    def add(self, pages: Mapping[str, Any]) -> Sequence[Observed]:
        """Take a reading of each proxy (Envoy's `/clusters?format=json`) and return the totals, sorted."""
        for proxy, page in pages.items():
            self._take(proxy, page)
        return [
            Observed(ref=ref, split=split, backend=backend, **count._asdict())
            for (ref, split, backend), count in sorted(self._totals.items())
        ]

    def _take(self, proxy: str, page: Any) -> None:
        current = dict(places(page))
        last = self._last.get(proxy, {})
        for place, count in current.items():
            ref = names.parse(place.cluster)
            if ref is not None and not names.is_mirror(place.cluster):  # copies are no user's traffic (D22)
                key = ref, names.owner(place.cluster), place.backend
                self._totals[key] = self._totals[key].plus(count.since(last.get(place, Count())))
        self._last[proxy] = current


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
    """Reads the proxies; `admins` returns those that there are now, by name."""

    def __init__(self, admins: Callable[[], Mapping[str, Admin]]) -> None:
        self._admins = admins
        self._totals = Totals()

    async def read(self) -> Sequence[Observed]:
        """Ask the proxies and return the totals; one that does not answer counts again when it does.

        Raises ProxyError when none answers.
        """
        admins = self._admins()
        found = await asyncio.gather(*(admin.get_json(PAGE) for admin in admins.values()), return_exceptions=True)
        pages = {name: page for name, page in zip(admins, found, strict=True) if not isinstance(page, BaseException)}
        for failure in found:
            if isinstance(failure, BaseException) and (not pages or not isinstance(failure, ProxyError)):
                raise failure
        return self._totals.add(pages)
