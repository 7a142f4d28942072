"""The metrics for Prometheus: of the traffic, and of the control plane itself (builds, proxies, certificates, the process)."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import get_args

from headgate import __version__
from headgate.compiler.report import Compiled
from headgate.errors import HeadgateError
from headgate.identity.certificates import read_certificates, validity
from headgate.model.evaluate import fractions
from headgate.model.routing import PortRef, Split, Target
from headgate.plane.control_plane import ControlPlane
from headgate.plane.live_state import LiveState
from headgate.plane.loop import DurationHistogram
from headgate.plane.object_graphs import pods_in
from headgate.plane.proxy_status import proxy_state
from headgate.resources.inspect import ProxyState
from headgate.telemetry.prometheus.labels import FlowLabels
from headgate.telemetry.prometheus.text import Family, Line, traffic
from headgate.telemetry.prometheus.totals import Labels, Totals
from headgate.telemetry.receiver import NOTES

_PROCESS = Path("/proc/self")
_PAGE, _TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_BEGAN = time.time()


class MeshMetrics:
    """All metrics. The counts of the traffic start at zero when the object is created.

    The parameters are those of `ControlPlaneMetrics` and of `FlowLabels`.
    """

    def __init__(
        self, plane: ControlPlane, gateway_restarts: Callable[[], int] = lambda: 0, *, by_pod: bool = False
    ) -> None:
        self._of_plane = ControlPlaneMetrics(plane.live_state, gateway_restarts)
        describe = FlowLabels(pods_in(plane.live_state.feed.snapshot), by_pod=by_pod)
        self._totals = Totals(describe, clock=time.monotonic, started=time.time(), by_pod=by_pod)
        for what in NOTES:  # PromQL's increase() ignores the first value of a series, so each series begins at zero
            self._totals.note(what, 0)
        plane.traffic.windows.count_in(self._totals)

    async def run(self) -> None:
        """Measure push durations until canceled."""
        await self._of_plane.run()

    def families(self) -> Iterator[Family]:
        """Yield the current values of all metrics."""
        return chain(self._of_plane.families(), traffic(self._totals))


class ControlPlaneMetrics:
    """The control plane's metrics. `gateway_restarts` returns how often the gateway's Envoy was restarted.

    The task `run` measures the time from each build until the proxies have acknowledged or rejected it.
    """

    def __init__(self, live_state: LiveState, gateway_restarts: Callable[[], int]) -> None:
        self._live_state = live_state
        self._gateway_restarts = gateway_restarts
        self._pushes = DurationHistogram()

    async def run(self) -> None:
        """Measure push durations until canceled."""
        async for compiled in self._live_state.loop.compiled.changes():
            if compiled is not None and self._live_state.fleet.connected():
                began = time.monotonic()
                await self._live_state.wait_distributed()
                self._pushes.add(time.monotonic() - began)

    def families(self) -> Iterator[Family]:
        """Yield the current values of all metrics."""
        yield Family("headgate_build_info", "gauge", "The version of headgate.", [Line(1, (("version", __version__),))])
        yield from self._builds()
        yield from self._proxies()
        yield from self._certificates()
        yield from self._mesh()
        yield from _process()

    def _builds(self) -> Iterator[Family]:
        loop = self._live_state.loop
        compiled = loop.compiled.get()
        text = "Time to compile all objects and encode the configuration of every proxy."
        yield Family("headgate_build_duration_seconds", "histogram", text, loop.builds.lines())
        text = "Time from the end of a build until every connected proxy acknowledged or rejected it."
        yield Family("headgate_push_duration_seconds", "histogram", text, self._pushes.lines())
        text = "Builds that failed because of a bug in headgate; the proxies keep the last configuration."
        yield Family("headgate_build_failures_total", "counter", text, [Line(loop.failures)])
        text = "The newest revision of the objects: read from the API, and built."
        snapshot = self._live_state.feed.snapshot.get()
        revisions = {"read": snapshot.revision if snapshot else 0, "built": compiled.revision if compiled else 0}
        yield Family("headgate_revision", "gauge", text, _by("state", revisions))
        text = "Current findings about objects, by reason."
        reasons = Counter(finding.reason.value for finding in self._live_state.findings())
        yield Family("headgate_findings", "gauge", text, _by("reason", reasons))

    def _proxies(self) -> Iterator[Family]:
        fleet = self._live_state.fleet
        connected = fleet.connected()
        states = dict.fromkeys(get_args(ProxyState), 0) | Counter(map(proxy_state, fleet.proxies.values()))
        text = "Proxies by state, as `headgate proxies` shows it."
        yield Family("headgate_proxies", "gauge", text, _by("state", states))
        text = "Resources that proxies currently reject (NACK)."
        refusals = sum(1 for proxy in connected for _ in proxy.rejections())
        yield Family("headgate_xds_resources_refused", "gauge", text, [Line(refusals)])
        for what, text in (
            ("streams", "xDS streams that proxies opened."),
            ("acks", "xDS responses that proxies acknowledged (ACK)."),
            ("nacks", "xDS responses that proxies rejected (NACK)."),
            ("overdue", "xDS responses that proxies did not answer in time."),
        ):
            yield Family(f"headgate_xds_{what}_total", "counter", text, [Line(fleet.counts[what])])
        text = "Restarts of the gateway's Envoy after it exited by itself."
        yield Family("headgate_gateway_restarts_total", "counter", text, [Line(self._gateway_restarts())])

    def _certificates(self) -> Iterator[Family]:
        credentials = self._live_state.loop.credentials
        current = list(credentials.current.get().values())
        yield Family("headgate_certificates", "gauge", "Proxies that have a certificate.", [Line(len(current))])
        text = "Proxies for which no new certificate could be issued; they have an old certificate or none."
        yield Family("headgate_certificate_faults", "gauge", text, [Line(len(credentials.faults.get()))])
        first = sorted((end, end - begin) for begin, end in (_validity(credential.chain) for credential in current))[:1]
        text = "When the first of the proxies' certificates expires, in seconds since the epoch."
        yield Family("headgate_certificate_expiry_timestamp_seconds", "gauge", text, [Line(end) for end, _ in first])
        text = "Total lifetime in seconds of the certificate that expires first; headgate replaces a certificate after half of its lifetime."
        yield Family("headgate_certificate_lifetime_seconds", "gauge", text, [Line(lifetime) for _, lifetime in first])
        ends = [end for credential in current[:1] if (end := _authority_expiry(credential.roots))]
        text = "When the first trusted root certificate of the mesh expires, in seconds since the epoch."
        yield Family("headgate_authority_expiry_timestamp_seconds", "gauge", text, map(Line, ends))

    def _mesh(self) -> Iterator[Family]:
        compiled = self._live_state.loop.compiled.get()
        workloads = compiled.mesh.workloads if compiled else ()
        modes = Counter(workload.tls_mode.value for workload in workloads)
        text = "Pods with a proxy, by TLS mode from plaintext to strict mutual TLS."
        yield Family("headgate_mesh_pods", "gauge", text, _by("tls_mode", modes))
        text = "The share of requests that a split or route assigns to a backend, 0 to 1."
        yield Family("headgate_backend_wanted_ratio", "gauge", text, _wanted(compiled))


def _by(label: str, values: "dict[str, int] | Counter[str]") -> Iterable[Line]:
    return [Line(value, ((label, name),)) for name, value in sorted(values.items())]


def _wanted(compiled: Compiled | None) -> Iterator[Line]:
    for table in compiled.mesh.all_tables if compiled else ():
        for number, route in enumerate(table.all_routes):
            if origin := route.origin:
                name = f"{origin.kind}/{origin.namespace}/{origin.name}"
                for backend, ratio in _ratios(route.split):
                    yield Line(ratio, _share_labels(table.ref, backend, name, number))


def _ratios(split: Split) -> Iterator[tuple[str, float]]:
    """Yield each valid backend with its share of the requests, 0 to 1.

    Requests for invalid backends fail, but are included in the total.
    """
    shares: dict[str, Fraction] = {}
    for target, share in fractions(split):
        if isinstance(target, Target):
            shares[target.ref.service] = shares.get(target.ref.service, Fraction()) + share
    return ((backend, float(share)) for backend, share in sorted(shares.items()))


def _share_labels(ref: PortRef, backend: str, route: str, rule: int) -> Labels:
    namespace, _, service = ref.service.partition("/")
    backend_namespace, _, backend_name = backend.partition("/")
    return (
        ("destination_service_name", service),
        ("destination_service_namespace", namespace),
        ("destination_port", str(ref.port)),
        ("backend_name", backend_name),
        ("backend_namespace", backend_namespace),
        ("route", route),
        ("rule", str(rule)),
    )


@lru_cache(10_000)
def _validity(chain: str) -> tuple[float, float]:
    return validity(read_certificates(chain, "a proxy's certificate")[0])


@lru_cache(4)
def _authority_expiry(roots: str) -> float | None:
    try:
        return min(validity(root)[1] for root in read_certificates(roots, "the mesh's root certificates"))
    except HeadgateError:
        return None


def _process() -> Iterator[Family]:
    resident = int((_PROCESS / "statm").read_text().split()[1]) * _PAGE
    ticks = (_PROCESS / "stat").read_text().rpartition(")")[2].split()
    processor = (int(ticks[11]) + int(ticks[12])) / _TICK
    files = sum(1 for _ in (_PROCESS / "fd").iterdir())
    yield Family("process_resident_memory_bytes", "gauge", "Resident memory of headgate in bytes.", [Line(resident)])
    yield Family(
        "process_cpu_seconds_total", "counter", "User and system CPU time of headgate in seconds.", [Line(processor)]
    )
    yield Family("process_open_fds", "gauge", "Open file descriptors of headgate.", [Line(files)])
    yield Family(
        "process_start_time_seconds", "gauge", "When headgate started, in seconds since the epoch.", [Line(_BEGAN)]
    )
