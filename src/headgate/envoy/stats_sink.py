"""How counts get to headgate: each proxy sends the values of its series every few seconds, over the connection that its
configuration comes by (R85, R97).

Values are cumulative: what a report doesn't bring, the next one does, and nothing is lost while headgate is away. Two
things a receiver must know (docs/metrics.md): a series that nobody used since the last sweep is not sent, and at the next
sweep it is dropped and begins anew; and a process that ends doesn't report once more.
"""

from headgate.envoy import pb, traffic_stats
from headgate.model.latency_buckets import BOUNDS_US

LOCAL_SECONDS = 2  # on one machine, where somebody looks on
CLUSTER_SECONDS = 5  # thousands of proxies that all report
SWEEP_SECONDS = 600
"""Between two sweeps of series that nobody uses. It is how long headgate may be away without missing anything."""
REPORT_TIMEOUT_SECONDS = 10
POINTS = 500  # in a message: one of a histogram has up to 4 KB, and gRPC's limit is 4 MB
NODE = "node"
"""The attribute of a report that says whose it is."""
STATS_OVERFLOW = "server.stats_overflow."
UPTIME = "server.uptime"
"""Sent besides, so that there is a report without traffic too: one that does not name a series says that it was dropped."""
_SENT = (f"{traffic_stats.PREFIX}.", STATS_OVERFLOW, UPTIME)
BOUNDS = tuple(bound * 0.999 for bound in BOUNDS_US)
"""The buckets' bounds as Envoy gets them, in microseconds.

It keeps latencies in bins of two digits (2.0 to 2.1 s), and counts a bin as below a bound that it begins with: at 2 s it
would count what took 2.09 s. A little below the bound, what counts is what took less than that, and nothing else.
"""
_MIRRORS = "cluster.mirror/"  # and the rest of what `names.mirror` says
_DETECTOR = "envoy.tracers.opentelemetry.resource_detectors.static_config"


def reports_per_eviction(seconds: int) -> int:
    """Return how many reports there are between two sweeps where one comes every few `seconds`.

    A receiver must know just that of its proxies: with more, a series that was dropped seems to go on, and what it counts
    anew is missing; with less, one that goes on seems to begin anew, and counts twice.
    """
    return SWEEP_SECONDS // seconds


def add_stats_sink(message: pb.Bootstrap, *, cluster: str, seconds: int) -> None:
    """Let a proxy count, and report every few `seconds` to a `cluster`, in the name of its node id."""
    message.admin.access_log.append(traffic_stats.scope_anchor())
    message.stats_flush_interval.CopyFrom(pb.Duration(seconds=seconds))
    message.stats_eviction_interval.CopyFrom(pb.Duration(seconds=SWEEP_SECONDS))
    latency = pb.StringMatcher(prefix=f"{traffic_stats.PREFIX}.{traffic_stats.LATENCY}")
    message.stats_config.histogram_bucket_settings.append(pb.HistogramBucketSettings(match=latency, buckets=BOUNDS))
    message.stats_config.stats_matcher.inclusion_list.patterns.append(
        pb.StringMatcher(prefix=f"{traffic_stats.PREFIX}.")
    )
    sink = pb.pack(_sink(message.node.id, cluster))
    message.stats_sinks.append(pb.StatsSink(name="envoy.stat_sinks.open_telemetry", typed_config=sink))


def _sink(node: str, cluster: str) -> pb.OpenTelemetrySink:
    return pb.OpenTelemetrySink(
        grpc_service=pb.GrpcService(
            envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name=cluster),
            timeout=pb.Duration(seconds=REPORT_TIMEOUT_SECONDS),
        ),
        resource_detectors=[
            pb.TypedExtensionConfig(
                name=_DETECTOR, typed_config=pb.pack(pb.StaticResourceDetector(attributes={NODE: node}))
            )
        ],
        report_counters_as_deltas=False,
        report_histograms_as_deltas=False,
        emit_tags_as_attributes=pb.BoolValue(value=True),
        use_tag_extracted_name=pb.BoolValue(value=True),
        max_data_points_per_request=POINTS,
        custom_metric_conversions=_metric_conversions(),
    )


def _metric_conversions() -> pb.XdsMatcher:
    """Return what gives Envoy's counters of copies their names, and leaves out what is for the admin page only."""
    rules = [
        (_all(_prefix(_MIRRORS), _suffix(".rq_success")), _renamed(traffic_stats.COPIES)),
        (_all(_prefix(_MIRRORS), _suffix(traffic_stats.PENDING_OVERFLOW)), _renamed(traffic_stats.COPIES_DROPPED)),
        (
            pb.XdsMatcher.MatcherList.Predicate(not_matcher=_any(*map(_prefix, _SENT))),
            pb.OpenTelemetrySink.DropAction(),
        ),
    ]
    matchers = [
        pb.XdsMatcher.MatcherList.FieldMatcher(
            predicate=predicate,
            on_match=pb.XdsMatcher.OnMatch(action=pb.XdsTypedExtension(name="do", typed_config=pb.pack(action))),
        )
        for predicate, action in rules
    ]
    return pb.XdsMatcher(matcher_list=pb.XdsMatcher.MatcherList(matchers=matchers))


def _renamed(name: str) -> pb.OpenTelemetrySink.ConversionAction:
    return pb.OpenTelemetrySink.ConversionAction(metric_name=f"{traffic_stats.PREFIX}.{name}")


def _prefix(text: str) -> pb.XdsMatcher.MatcherList.Predicate:
    return _named(pb.XdsStringMatcher(prefix=text))


def _suffix(text: str) -> pb.XdsMatcher.MatcherList.Predicate:
    return _named(pb.XdsStringMatcher(suffix=text))


def _named(match: pb.XdsStringMatcher) -> pb.XdsMatcher.MatcherList.Predicate:
    name = pb.XdsTypedExtension(name="name", typed_config=pb.pack(pb.StatNameInput()))
    return pb.XdsMatcher.MatcherList.Predicate(
        single_predicate=pb.XdsMatcher.MatcherList.Predicate.SinglePredicate(input=name, value_match=match)
    )


def _all(*several: pb.XdsMatcher.MatcherList.Predicate) -> pb.XdsMatcher.MatcherList.Predicate:
    return pb.XdsMatcher.MatcherList.Predicate(
        and_matcher=pb.XdsMatcher.MatcherList.Predicate.PredicateList(predicate=several)
    )


def _any(*several: pb.XdsMatcher.MatcherList.Predicate) -> pb.XdsMatcher.MatcherList.Predicate:
    return pb.XdsMatcher.MatcherList.Predicate(
        or_matcher=pb.XdsMatcher.MatcherList.Predicate.PredicateList(predicate=several)
    )
