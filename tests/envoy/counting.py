"""Receive OTLP reports of proxies: a receiver on the xDS server, and rigs whose proxies report to it."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.envoy.inbound_rig import InboundRig
from tests.envoy.rig import SHORT_DRAIN, EnvoyRig
from tests.waiting import until
from tests.wire import DEADLINE_S

from headgate.envoy import pb
from headgate.envoy.config import LISTENER, Encoded
from headgate.envoy.encode import encode_resource
from headgate.envoy.outcomes import parse_code
from headgate.envoy.traffic_stats import split_backend
from headgate.standalone.proxies.envoy_flags import EnvoyFlags
from headgate.telemetry.reports.otlp import METHOD
from headgate.xds.unary_methods import CheckNode

REQUESTS = "requests"
"""All requests: the sum of the two series that count them (`envoy.traffic_stats`)."""
FLUSH_S = 0.1  # seconds between two reports; longer in production
Series = tuple[str, frozenset[tuple[str, str]]]
"""The name of a series and its non-empty attributes."""


class Report(NamedTuple):
    """All values of one report; `time` is in nanoseconds of the proxy's clock, a histogram's value is its count."""

    time: int
    values: Mapping[Series, int]
    message: pb.ExportMetricsServiceRequest


def read(message: pb.ExportMetricsServiceRequest) -> Report:
    """Decode an OTLP metrics request."""
    time, values = 0, {}
    for part in message.resource_metrics:
        for metric in (metric for scope in part.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            for point in getattr(metric, kind).data_points:
                pairs = split_backend({tag.key: tag.value.string_value for tag in point.attributes})
                if "code" in pairs:  # the gRPC status is a key of its own for the tests
                    pairs["code"], _, pairs["grpc"] = pairs["code"].partition(" ")
                tags = frozenset((key, text) for key, text in pairs.items() if text)
                values[metric.name, tags] = point.count if kind == "histogram" else point.as_int
                if counts_requests(metric.name, dict(tags)):
                    values[REQUESTS, tags] = values[metric.name, tags]
                time = max(time, point.time_unix_nano)
    return Report(time, values, message)


def counts_requests(series: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a series counts such requests: `mesh.flagged` if Envoy set response flags, else `mesh.latency`."""
    flagged = parse_code(attributes.get("code", "")).is_flagged
    return series == ("mesh.flagged" if flagged else "mesh.latency")


class Reports:
    """The reports of a proxy. While `rejecting` is set, the receiver rejects reports and counts them in `rejected`."""

    def __init__(self) -> None:
        self.all: list[Report] = []
        self.rejecting = False
        self.rejected = 0
        self._report_added = threading.Condition()

    async def receive(self, data: bytes, _check_node: CheckNode) -> bytes:
        """Handle one OTLP export request that the xDS server received."""
        if self.rejecting:
            self.rejected += 1
            raise ConnectionError("the receiver rejects reports")
        with self._report_added:
            self.all.append(read(pb.ExportMetricsServiceRequest.FromString(data)))
            self._report_added.notify_all()
        return b""

    def next(self, wanted: Callable[[Report], bool] = lambda _: True, *, after: int | None = None) -> Report:
        """Wait for a report that `wanted` accepts; return it. The first `after` reports do not count, by default those so far."""
        with self._report_added:
            mark = len(self.all) if after is None else after
            assert self._report_added.wait_for(lambda: any(map(wanted, self.all[mark:])), DEADLINE_S), "no report fits"
            return next(filter(wanted, self.all[mark:]))

    def counts(self, name: str, *by: str, **having: str) -> Counter[Any]:
        """Return the last values of a series, keyed by the attributes `by`, of points that match `having`."""
        found: Counter[Any] = Counter()
        for (series, pairs), value in self.all[-1].values.items() if self.all else ():
            tags = dict(pairs)
            if series == name and having.items() <= tags.items():
                key = tuple(tags.get(tag, "") for tag in by)
                found[key[0] if len(key) == 1 else key] += value
        return found

    def total(self, name: str, **having: str) -> int:
        """Return the sum of the last values of a series, only of points with the attributes `having`."""
        return self.counts(name, **having).total()

    def wait_for(self, name: str, wanted: Mapping[Any, int], *by: str, **having: str) -> None:
        """Wait until `counts` returns `wanted`; assert that the next two reports don't change the result."""
        until(lambda: self.counts(name, *by, **having) == wanted or self._differs(name, wanted, *by, **having), name)
        for _ in range(2):
            self.next()
            assert self.counts(name, *by, **having) == wanted

    def _differs(self, name: str, wanted: Mapping[Any, int], *by: str, **having: str) -> bool:
        raise AssertionError(f"{name}: {dict(self.counts(name, *by, **having))}, not {dict(wanted)}")


class ReportingRig(EnvoyRig):
    """An EnvoyRig whose proxy reports every `FLUSH_S` seconds; Envoy evicts unused series every `sweep_s` seconds."""

    def __init__(self, *, sweep_s: float = 3600, flags: EnvoyFlags = SHORT_DRAIN) -> None:
        self.reports = Reports()
        intervals = {"stats_flush_interval": f"{FLUSH_S}s", "stats_eviction_interval": f"{sweep_s}s"}
        super().__init__(flags=flags, bootstrap_changes=intervals, unary_methods={METHOD: self.reports.receive})

    def change_listeners(self, name: str) -> None:
        """Change every listener, as an upgrade of headgate would; wait until the proxy uses the new listeners."""

        async def give() -> None:
            config = self._proxy.config.get() or {}
            changed = {key: _changed(key, found, name) for key, found in config[LISTENER].items()}
            self._proxy.config.set({**config, LISTENER: changed})

        self.network.run(give())
        until(self.settled, "the proxy has acknowledged the listeners")


def _changed(key: str, encoded: Encoded, name: str) -> Encoded:
    listener = pb.Listener.FromString(pb.Resource.FromString(encoded.body).resource.value)
    for chain in listener.filter_chains:
        chain.name = name
        for item in chain.filters:
            if item.typed_config.type_url == pb.type_url(pb.HttpConnectionManager):
                manager = pb.HttpConnectionManager.FromString(item.typed_config.value)
                manager.stat_prefix = name
                item.typed_config.CopyFrom(pb.pack(manager))
    return encode_resource(key, listener, encoded.needs)


class ReportingInboundRig(ReportingRig, InboundRig):
    """An InboundRig whose proxy sends its reports to `reports`."""
