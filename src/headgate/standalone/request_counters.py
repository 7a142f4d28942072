"""Counts requests by Service port and backend for the live table, from the admin interfaces of the proxies.

Telemetry is not used here: it reports only every two seconds, and does not count requests by the split that they match.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from headgate.envoy import names, traffic_stats
from headgate.envoy.outcomes import parse_code
from headgate.errors import ProxyError
from headgate.model.routing import PortRef
from headgate.resources.meta import Value
from headgate.standalone.proxies.admin import Admin
from headgate.telemetry.counters.counts import Counts, class_index

CLUSTERS = "/clusters?format=json"
_MAY_FAIL = rf"^{traffic_stats.PREFIX}\.({traffic_stats.FLAGGED}|{traffic_stats.LATENCY}.*\.code\.(5|.* [1-9]))"
"""A regular expression for the Envoy series that count failures. It leaves out histograms, which have many lines."""
SERIES = f"/stats/prometheus?filter={quote(_MAY_FAIL)}"
_PARTS_OF_A_PLACE = 4
_SAMPLE = re.compile(rf"^\w+_({traffic_stats.LATENCY}_count|{traffic_stats.FLAGGED})\{{(.*)\}} (\d+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class BackendRequests(Value, frozen=True, kw_only=True):
    """The requests to a Service port that one backend (`namespace/name`) received since headgate started to count.

    `failures` counts 5xx responses and gRPC server errors, from the application or from the proxy. `split` names the TrafficSplit
    whose matches select the requests; it is empty for all other requests.
    """

    ref: PortRef
    backend: str
    requests: int
    failures: int
    split: str = ""


class Count(NamedTuple):
    """Cumulative counters of requests and failures."""

    requests: int = 0
    failures: int = 0

    def since(self, earlier: "Count") -> "Count":
        """Return the increase since `earlier`. A decrease means that the counters were reset: then return the whole count."""
        if self.requests < earlier.requests or self.failures < earlier.failures:
            return self
        return Count(self.requests - earlier.requests, self.failures - earlier.failures)

    def plus(self, other: "Count") -> "Count":
        """Return the sum of both counts."""
        return Count(self.requests + other.requests, self.failures + other.failures)


class AdminPages(NamedTuple):
    """Two pages of a proxy's admin interface: `CLUSTERS` as decoded JSON, and `SERIES` as Prometheus text."""

    clusters: Any
    series: str = ""


class CounterKey(NamedTuple):
    """The key of a count: an endpoint in an Envoy cluster.

    For failures, whose series have no addresses, `address` contains the pod, the response code and the gRPC status.
    """

    cluster: str
    backend: str
    address: str


class BackendTotals:
    """Sums the increases of all endpoints, so that totals do not decrease when endpoints or proxies disappear."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[CounterKey, Count]] = {}
        self._totals: dict[tuple[PortRef, str, str], Count] = defaultdict(Count)

    def add(self, readings: Mapping[str, AdminPages]) -> Sequence[BackendRequests]:
        """Add one reading of each proxy; return the totals, sorted by Service port, split and backend."""
        for proxy, reading in readings.items():
            self._add(proxy, reading)
        return [
            BackendRequests(ref=ref, split=split, backend=backend, **count._asdict())
            for (ref, split, backend), count in sorted(self._totals.items())
        ]

    def _add(self, proxy: str, reading: AdminPages) -> None:
        current = {**dict(_endpoints(reading.clusters)), **dict(_failed(reading.series))}
        last = self._last.get(proxy, {})
        for endpoint, count in current.items():
            ref = names.parse(endpoint.cluster)
            # mirrored requests are not user traffic (D22)
            if ref is not None and not names.is_mirror(endpoint.cluster):
                key = ref, names.matching_split(endpoint.cluster), endpoint.backend
                self._totals[key] = self._totals[key].plus(count.since(last.get(endpoint, Count())))
        self._last[proxy] = current


def _endpoints(page: Any) -> Iterator[tuple[CounterKey, Count]]:
    """Yield each endpoint of a clusters page with its number of requests. Envoy omits numbers that are zero."""
    for cluster in page.get("cluster_statuses") or ():
        for host in cluster.get("host_statuses") or ():
            locality = host.get("locality") or {}
            stats = {stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats") or ()}
            backend = f"{locality.get('region', '')}/{locality.get('zone', '')}"
            yield CounterKey(cluster.get("name", ""), backend, _address(host)), Count(requests=stats.get("rq_total", 0))


def _address(host: Any) -> str:
    socket = (host.get("address") or {}).get("socket_address") or {}
    return f"{socket.get('address', '')}:{socket.get('port_value', '')}"


def _failed(series: str) -> Iterator[tuple[CounterKey, Count]]:
    """Yield the numbers of failed requests on a series page, by endpoint and response code (docs/tasks/metrics.md)."""
    for name, labels, value in _SAMPLE.findall(series):
        values = traffic_stats.split_backend(dict(_LABEL.findall(labels)))
        backend, code = traffic_stats.parse_backend(values), values.get("code", "")
        read = parse_code(code)
        is_counted = read.is_flagged == (name == traffic_stats.FLAGGED)
        if backend and is_counted and read.status and Counts.of({class_index(read.status, read.grpc): 1}).failure:
            yield (
                CounterKey(_cluster(values.get("cluster", "")), backend, f"{values.get('pod', '')} {code}"),
                Count(failures=int(value)),
            )


def _cluster(text: str) -> str:
    """Remove the name of the route in front of a cluster's name (`traffic_stats.route_name_without_cluster`)."""
    kind, *rest = text.split("/", maxsplit=_PARTS_OF_A_PLACE)
    return rest[-1] if kind == "outbound" and len(rest) == _PARTS_OF_A_PLACE and rest[-1] else text


def ejections(readings: Mapping[str, AdminPages]) -> Iterator[str]:
    """Yield a line for each endpoint that a proxy has ejected because it failed (docs/tasks/resilience.md)."""
    for proxy, reading in sorted(readings.items()):
        for cluster in reading.clusters.get("cluster_statuses") or ():
            ref = names.parse(cluster.get("name", ""))
            for host in cluster.get("host_statuses") or () if ref else ():
                if (host.get("health_status") or {}).get("failed_outlier_check"):
                    pod = host.get("hostname", "").strip() or _address(host)
                    yield f"{proxy} has ejected {pod} of {ref}, which failed"


class RequestCounters:
    """Reads the counters of all proxies; `admins` returns the admin interfaces of the running proxies by node ID.

    `ejections` has those of the last reading.
    """

    def __init__(self, admins: Callable[[], Mapping[str, Admin]]) -> None:
        self._admins = admins
        self._totals = BackendTotals()
        self.ejections: tuple[str, ...] = ()

    async def read(self) -> Sequence[BackendRequests]:
        """Return the current totals. Requests of a proxy that does not answer are added when it answers again.

        Raises ProxyError when no proxy answers.
        """
        admins = self._admins()
        results = await asyncio.gather(*map(_read, admins.values()), return_exceptions=True)
        readings = {
            name: result for name, result in zip(admins, results, strict=True) if not isinstance(result, BaseException)
        }
        for failure in results:
            if isinstance(failure, BaseException) and (not readings or not isinstance(failure, ProxyError)):
                raise failure
        self.ejections = tuple(dict.fromkeys(ejections(readings)))
        return self._totals.add(readings)


async def _read(admin: Admin) -> AdminPages:
    return AdminPages(await admin.get_json(CLUSTERS), (await admin.get(SERIES)).decode())
