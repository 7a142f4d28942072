"""Send each proxy's statistics to headgate every few seconds, over the xDS connection (R85, R97).

Values are cumulative, so a lost report loses nothing. Two things matter to a receiver (docs/tasks/metrics.md). A series
without changes since the last eviction is not sent; the next eviction drops it, and it starts at zero again. A
process sends no final report when it exits.
"""

from headgate.envoy import cluster_stats, names, pb, traffic_stats
from headgate.model.latency_buckets import BOUNDS_US
from headgate.model.size_buckets import BOUNDS_BYTES

LOCAL_SECONDS = 2  # time between reports on one machine, where users expect current numbers
CLUSTER_SECONDS = 5  # time between reports in a cluster, where thousands of proxies report
EVICTION_SECONDS = 600
"""The time between two evictions of unused series. No counts are lost if headgate is unreachable for a shorter time."""
REPORT_TIMEOUT_SECONDS = 10
POINTS = 500  # maximum data points per message: a histogram's point has up to 4 KB, and gRPC's limit is 4 MB
NODE = "node"
"""The attribute that contains the proxy's node ID in a report."""
STATS_OVERFLOW = "server.stats_overflow."
UPTIME = "server.uptime"
"""A counter that every report contains, so that a proxy without traffic reports too. A series that is missing from a
report has been evicted."""
_SENT = (f"{traffic_stats.PREFIX}.", STATS_OVERFLOW, UPTIME)
BOUNDS = tuple(bound * 0.999 for bound in BOUNDS_US)
"""The histogram bounds for Envoy, in microseconds. Envoy counts latencies in bins of two digits, as in 2.0 to 2.1 s. It
counts the bin that begins at a bound as below the bound, so a bound of 2 s would include 2.09 s. With slightly smaller
bounds, a bucket contains exactly the latencies below the nominal bound."""
SIZE_BOUNDS = tuple(bound * 0.999 for bound in BOUNDS_BYTES)
"""The histogram bounds of response sizes for Envoy, in bytes."""
_MIRRORS = f"cluster.{names.MIRROR}"  # the prefix of mirror clusters in statistics
_DETECTOR = "envoy.tracers.opentelemetry.resource_detectors.static_config"


def reports_per_eviction(seconds: int) -> int:
    """Return how many reports there are between two evictions, with one report every `seconds`.

    A receiver must use exactly this number. With a larger number, it would not detect that a series was evicted, and
    lose its new counts. With a smaller number, it would treat a continued series as a new one, and count it twice.
    """
    return EVICTION_SECONDS // seconds


def add_stats_sink(message: pb.Bootstrap, *, cluster: str, seconds: int) -> None:
    """Add a stats sink to a bootstrap: the proxy reports to `cluster` every `seconds` seconds, with its node ID."""
    message.admin.access_log.append(traffic_stats.scope_anchor())
    message.stats_flush_interval.CopyFrom(pb.Duration(seconds=seconds))
    message.stats_eviction_interval.CopyFrom(pb.Duration(seconds=EVICTION_SECONDS))
    latency = pb.StringMatcher(prefix=f"{traffic_stats.PREFIX}.{traffic_stats.LATENCY}")
    sizes = pb.StringMatcher(suffix=cluster_stats.BODY_SIZE)
    config = message.stats_config
    config.histogram_bucket_settings.append(pb.HistogramBucketSettings(match=latency, buckets=BOUNDS))
    config.histogram_bucket_settings.append(pb.HistogramBucketSettings(match=sizes, buckets=SIZE_BOUNDS))
    config.stats_matcher.inclusion_list.patterns.extend([pb.StringMatcher(prefix=f"{traffic_stats.PREFIX}."), sizes])
    regex = rf"^cluster\.((.+)\{cluster_stats.BODY_SIZE})$"
    config.stats_tags.append(pb.TagSpecifier(tag_name=cluster_stats.SIZES_CLUSTER, regex=regex))
    regex = rf"^udp\.((.+)\{cluster_stats.DATAGRAMS_DROPPED})$"
    config.stats_tags.append(pb.TagSpecifier(tag_name=cluster_stats.DROPPED_CLUSTER, regex=regex))
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
    """Return the matcher that renames Envoy's own series that the receiver needs, and drops all that it does not need."""
    rules = [
        (_all(_prefix(_MIRRORS), _suffix(cluster_stats.PENDING_OVERFLOW)), _renamed(cluster_stats.COPIES_DROPPED)),
        (_suffix(cluster_stats.BODY_SIZE), _renamed(cluster_stats.RESPONSE_SIZES)),
        (_suffix(cluster_stats.DATAGRAMS_DROPPED), _renamed(traffic_stats.FAILED)),
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
