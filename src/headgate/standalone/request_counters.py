"""Requests by Service port and backend, read from the admin interfaces of the proxies: what the live table shows.

Telemetry has more, but only every two seconds, and without the split whose groups a request fits.
"""

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


class BackendRequests(Value, frozen=True, kw_only=True):
    """The requests to a Service port that one backend (`namespace/name`) got, since headgate began to count.

    `failures` are answers of 5xx, from the application or from the proxy in its place. `split` names the split whose groups
    the requests fit, if any.
    """

    ref: PortRef
    backend: str
    requests: int
    failures: int
    split: str = ""


class Count(NamedTuple):
    """Two counters that only grow."""

    requests: int = 0
    failures: int = 0

    def since(self, earlier: "Count") -> "Count":
        """Return the growth; a counter that shrank was reset, so all of it is growth."""
        if self.requests < earlier.requests or self.failures < earlier.failures:
            return self
        return Count(self.requests - earlier.requests, self.failures - earlier.failures)

    def plus(self, other: "Count") -> "Count":
        """Return the sum."""
        return Count(self.requests + other.requests, self.failures + other.failures)


class Endpoint(NamedTuple):
    """One endpoint in one of Envoy's clusters."""

    cluster: str
    backend: str
    address: str


class BackendTotals:
    """Adds up the growth of each endpoint, so that totals never shrink when endpoints or proxies leave."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[Endpoint, Count]] = {}
        self._totals: dict[tuple[PortRef, str, str], Count] = defaultdict(Count)

    def add(self, pages: Mapping[str, Any]) -> Sequence[BackendRequests]:
        """Add a page of each proxy (Envoy's `/clusters?format=json`) and return the totals, sorted."""
        for proxy, page in pages.items():
            self._add(proxy, page)
        return [
            BackendRequests(ref=ref, split=split, backend=backend, **count._asdict())
            for (ref, split, backend), count in sorted(self._totals.items())
        ]

    def _add(self, proxy: str, page: Any) -> None:
        current = dict(_endpoints(page))
        last = self._last.get(proxy, {})
        for endpoint, count in current.items():
            ref = names.parse(endpoint.cluster)
            if ref is not None and not names.is_mirror(endpoint.cluster):  # copies are no user's traffic (D22)
                key = ref, names.owner(endpoint.cluster), endpoint.backend
                self._totals[key] = self._totals[key].plus(count.since(last.get(endpoint, Count())))
        self._last[proxy] = current


def _endpoints(page: Any) -> Iterator[tuple[Endpoint, Count]]:
    """Yield the endpoints of a page with their counters; Envoy leaves out zeros."""
    for cluster in page.get("cluster_statuses") or ():
        for host in cluster.get("host_statuses") or ():
            locality = host.get("locality") or {}
            socket = (host.get("address") or {}).get("socket_address") or {}
            stats = {stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats") or ()}
            backend = f"{locality.get('region', '')}/{locality.get('zone', '')}"
            address = f"{socket.get('address', '')}:{socket.get('port_value', '')}"
            count = Count(stats.get("rq_total", 0), stats.get("rq_error", 0))
            yield Endpoint(cluster.get("name", ""), backend, address), count


class RequestCounters:
    """Reads the proxies; `admins` returns those that run now, by name."""

    def __init__(self, admins: Callable[[], Mapping[str, Admin]]) -> None:
        self._admins = admins
        self._totals = BackendTotals()

    async def read(self) -> Sequence[BackendRequests]:
        """Return the totals of now. A proxy that does not answer is added when it answers again.

        Raises ProxyError if no proxy answers.
        """
        admins = self._admins()
        found = await asyncio.gather(*(admin.get_json(PAGE) for admin in admins.values()), return_exceptions=True)
        pages = {name: page for name, page in zip(admins, found, strict=True) if not isinstance(page, BaseException)}
        for failure in found:
            if isinstance(failure, BaseException) and (not pages or not isinstance(failure, ProxyError)):
                raise failure
        return self._totals.add(pages)
