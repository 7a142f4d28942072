"""The Envoy messages that headgate uses, and their descriptor pool; other modules use `pb` (ADR 0001).

The descriptors come from the Envoy binary, so they match the Envoy that headgate ships with. To add a message, add a
line to `NAMES`, run `tools/envoy_messages.py` and commit its output: `messages.fds.z` and `pb.pyi`. The pool is
private: its classes do not conflict with those of other packages.
"""

import zlib
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

BLOB = "messages.fds.z"

NAMES = MappingProxyType(
    {
        # discovery
        "DeltaDiscoveryRequest": "envoy.service.discovery.v3.DeltaDiscoveryRequest",
        "DeltaDiscoveryResponse": "envoy.service.discovery.v3.DeltaDiscoveryResponse",
        "DiscoveryRequest": "envoy.service.discovery.v3.DiscoveryRequest",
        "DiscoveryResponse": "envoy.service.discovery.v3.DiscoveryResponse",
        "Resource": "envoy.service.discovery.v3.Resource",
        "ResourceError": "envoy.service.discovery.v3.ResourceError",
        "ResourceName": "envoy.service.discovery.v3.ResourceName",
        "Status": "google.rpc.Status",
        # bootstrap
        "Bootstrap": "envoy.config.bootstrap.v3.Bootstrap",
        "Admin": "envoy.config.bootstrap.v3.Admin",
        "ClusterManager": "envoy.config.bootstrap.v3.ClusterManager",
        "LayeredRuntime": "envoy.config.bootstrap.v3.LayeredRuntime",
        "DownstreamConnectionsMonitor": "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        "OverloadManager": "envoy.config.overload.v3.OverloadManager",
        "ResourceMonitor": "envoy.config.overload.v3.ResourceMonitor",
        "Runtime": "envoy.service.runtime.v3.Runtime",
        "RuntimeLayer": "envoy.config.bootstrap.v3.RuntimeLayer",
        # core
        "Address": "envoy.config.core.v3.Address",
        "AggregatedConfigSource": "envoy.config.core.v3.AggregatedConfigSource",
        "ApiConfigSource": "envoy.config.core.v3.ApiConfigSource",
        "ApiVersion": "envoy.config.core.v3.ApiVersion",
        "AsyncDataSource": "envoy.config.core.v3.AsyncDataSource",
        "BackoffStrategy": "envoy.config.core.v3.BackoffStrategy",
        "BindConfig": "envoy.config.core.v3.BindConfig",
        "BuildVersion": "envoy.config.core.v3.BuildVersion",
        "CidrRange": "envoy.config.core.v3.CidrRange",
        "CommonHttpProtocolOptions": "envoy.config.core.v3.HttpProtocolOptions",
        "ConfigSource": "envoy.config.core.v3.ConfigSource",
        "ControlPlane": "envoy.config.core.v3.ControlPlane",
        "DataSource": "envoy.config.core.v3.DataSource",
        "EnvoyInternalAddress": "envoy.config.core.v3.EnvoyInternalAddress",
        "ExtensionConfigSource": "envoy.config.core.v3.ExtensionConfigSource",
        "GrpcProtocolOptions": "envoy.config.core.v3.GrpcProtocolOptions",
        "GrpcService": "envoy.config.core.v3.GrpcService",
        "HeaderValue": "envoy.config.core.v3.HeaderValue",
        "HeaderValueOption": "envoy.config.core.v3.HeaderValueOption",
        "HealthCheck": "envoy.config.core.v3.HealthCheck",
        "HealthStatus": "envoy.config.core.v3.HealthStatus",
        "Http1ProtocolOptions": "envoy.config.core.v3.Http1ProtocolOptions",
        "Http2ProtocolOptions": "envoy.config.core.v3.Http2ProtocolOptions",
        "KeepaliveSettings": "envoy.config.core.v3.KeepaliveSettings",
        "Locality": "envoy.config.core.v3.Locality",
        "Metadata": "envoy.config.core.v3.Metadata",
        "Node": "envoy.config.core.v3.Node",
        "PathConfigSource": "envoy.config.core.v3.PathConfigSource",
        "Pipe": "envoy.config.core.v3.Pipe",
        "QueryParameter": "envoy.config.core.v3.QueryParameter",
        "RoutingPriority": "envoy.config.core.v3.RoutingPriority",
        "RuntimeFeatureFlag": "envoy.config.core.v3.RuntimeFeatureFlag",
        "RuntimeFractionalPercent": "envoy.config.core.v3.RuntimeFractionalPercent",
        "RuntimeUInt32": "envoy.config.core.v3.RuntimeUInt32",
        "SelfConfigSource": "envoy.config.core.v3.SelfConfigSource",
        "SocketAddress": "envoy.config.core.v3.SocketAddress",
        "SocketOption": "envoy.config.core.v3.SocketOption",
        "SubstitutionFormatString": "envoy.config.core.v3.SubstitutionFormatString",
        "TcpKeepalive": "envoy.config.core.v3.TcpKeepalive",
        "TrafficDirection": "envoy.config.core.v3.TrafficDirection",
        "TransportSocket": "envoy.config.core.v3.TransportSocket",
        "TypedExtensionConfig": "envoy.config.core.v3.TypedExtensionConfig",
        "WatchedDirectory": "envoy.config.core.v3.WatchedDirectory",
        # clusters and endpoints
        "CaresDnsResolver": "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "DnsCluster": "envoy.extensions.clusters.dns.v3.DnsCluster",
        "DnsLookupFamily": "envoy.extensions.clusters.common.dns.v3.DnsLookupFamily",
        "DnsResolverOptions": "envoy.config.core.v3.DnsResolverOptions",
        "CircuitBreakers": "envoy.config.cluster.v3.CircuitBreakers",
        "Cluster": "envoy.config.cluster.v3.Cluster",
        "ClusterFilter": "envoy.config.cluster.v3.Filter",
        "LoadBalancingPolicy": "envoy.config.cluster.v3.LoadBalancingPolicy",
        "OutlierDetection": "envoy.config.cluster.v3.OutlierDetection",
        "TrackClusterStats": "envoy.config.cluster.v3.TrackClusterStats",
        "UpstreamConnectionOptions": "envoy.config.cluster.v3.UpstreamConnectionOptions",
        "ClusterLoadAssignment": "envoy.config.endpoint.v3.ClusterLoadAssignment",
        "Endpoint": "envoy.config.endpoint.v3.Endpoint",
        "LbEndpoint": "envoy.config.endpoint.v3.LbEndpoint",
        "LocalityLbEndpoints": "envoy.config.endpoint.v3.LocalityLbEndpoints",
        "HttpProtocolOptions": "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "LeastRequest": "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
        "LocalityLbConfig": "envoy.extensions.load_balancing_policies.common.v3.LocalityLbConfig",
        "RoundRobin": "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
        "WrrLocality": "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
        "OmitHostMetadataConfig": "envoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfig",
        "PreviousHostsPredicate": "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
        "PreviousPriorities": "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
        # listeners
        "AdditionalAddress": "envoy.config.listener.v3.AdditionalAddress",
        "ApiListener": "envoy.config.listener.v3.ApiListener",
        "Filter": "envoy.config.listener.v3.Filter",
        "FilterChain": "envoy.config.listener.v3.FilterChain",
        "FilterChainMatch": "envoy.config.listener.v3.FilterChainMatch",
        "Listener": "envoy.config.listener.v3.Listener",
        "ListenerFilter": "envoy.config.listener.v3.ListenerFilter",
        "ListenerFilterChainMatchPredicate": "envoy.config.listener.v3.ListenerFilterChainMatchPredicate",
        "HttpInspector": "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector",
        "OriginalDst": "envoy.extensions.filters.listener.original_dst.v3.OriginalDst",
        "TlsInspector": "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
        # routes
        "CorsPolicy": "envoy.config.route.v3.CorsPolicy",
        "DirectResponseAction": "envoy.config.route.v3.DirectResponseAction",
        "HeaderMatcher": "envoy.config.route.v3.HeaderMatcher",
        "HttpStatus": "envoy.type.v3.HttpStatus",
        "InternalRedirectPolicy": "envoy.config.route.v3.InternalRedirectPolicy",
        "NonForwardingAction": "envoy.config.route.v3.NonForwardingAction",
        "QueryParameterMatcher": "envoy.config.route.v3.QueryParameterMatcher",
        "RedirectAction": "envoy.config.route.v3.RedirectAction",
        "RetryPolicy": "envoy.config.route.v3.RetryPolicy",
        "Route": "envoy.config.route.v3.Route",
        "RouteAction": "envoy.config.route.v3.RouteAction",
        "RouteConfiguration": "envoy.config.route.v3.RouteConfiguration",
        "RouteFilterConfig": "envoy.config.route.v3.FilterConfig",
        "RouteMatch": "envoy.config.route.v3.RouteMatch",
        "ScopedRouteConfiguration": "envoy.config.route.v3.ScopedRouteConfiguration",
        "VirtualHost": "envoy.config.route.v3.VirtualHost",
        "WeightedCluster": "envoy.config.route.v3.WeightedCluster",
        # network filters
        "HttpConnectionManager": "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "HttpFilter": "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        "LocalReplyConfig": "envoy.extensions.filters.network.http_connection_manager.v3.LocalReplyConfig",
        "Rds": "envoy.extensions.filters.network.http_connection_manager.v3.Rds",
        "ResponseMapper": "envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper",
        "ScopedRds": "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds",
        "ScopedRoutes": "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes",
        "SetFilterState": "envoy.extensions.filters.network.set_filter_state.v3.Config",
        "TcpProxy": "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "UpstreamConnectMode": "envoy.extensions.filters.network.tcp_proxy.v3.UpstreamConnectMode",
        # HTTP filters
        "EarlyHeaderMutation": "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
        "CredentialInjector": "envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
        "FilterStateValue": "envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue",
        "GenericCredential": "envoy.extensions.http.injected_credentials.generic.v3.Generic",
        "HeaderMutation": "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        "FilterStateInput": "envoy.extensions.matching.common_inputs.network.v3.FilterStateInput",
        "HttpSetFilterState": "envoy.extensions.filters.http.set_filter_state.v3.Config",
        "HeaderMutationPerRoute": "envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute",
        "HeaderMutationRule": "envoy.config.common.mutation_rules.v3.HeaderMutation",
        "HeaderMutations": "envoy.extensions.filters.http.header_mutation.v3.Mutations",
        "HealthCheckFilter": "envoy.extensions.filters.http.health_check.v3.HealthCheck",
        "HttpRbac": "envoy.extensions.filters.http.rbac.v3.RBAC",
        "HttpRbacPerRoute": "envoy.extensions.filters.http.rbac.v3.RBACPerRoute",
        "OnDemand": "envoy.extensions.filters.http.on_demand.v3.OnDemand",
        "OnDemandCds": "envoy.extensions.filters.http.on_demand.v3.OnDemandCds",
        "OnDemandPerRoute": "envoy.extensions.filters.http.on_demand.v3.PerRouteConfig",
        "ExtensionWithMatcher": "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
        "Lua": "envoy.extensions.filters.http.lua.v3.Lua",
        "LuaPerRoute": "envoy.extensions.filters.http.lua.v3.LuaPerRoute",
        "Router": "envoy.extensions.filters.http.router.v3.Router",
        "SkipFilter": "envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
        "UpstreamCodec": "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
        # access
        "MtlsAuthenticated": "envoy.extensions.rbac.principals.mtls_authenticated.v3.Config",
        "Permission": "envoy.config.rbac.v3.Permission",
        "Policy": "envoy.config.rbac.v3.Policy",
        "Principal": "envoy.config.rbac.v3.Principal",
        "RBAC": "envoy.config.rbac.v3.RBAC",
        # TLS
        "CertificateValidationContext": "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext",
        "CommonTlsContext": "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext",
        "DownstreamTlsContext": "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "GenericSecret": "envoy.extensions.transport_sockets.tls.v3.GenericSecret",
        "InternalListener": "envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
        "InternalUpstream": "envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport",
        "RawBuffer": "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
        "SdsSecretConfig": "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig",
        "Secret": "envoy.extensions.transport_sockets.tls.v3.Secret",
        "SubjectAltNameMatcher": "envoy.extensions.transport_sockets.tls.v3.SubjectAltNameMatcher",
        "TlsCertificate": "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
        "TlsParameters": "envoy.extensions.transport_sockets.tls.v3.TlsParameters",
        "UpstreamTlsContext": "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        # statistics and access logs
        "AccessLog": "envoy.config.accesslog.v3.AccessLog",
        "AccessLogFilter": "envoy.config.accesslog.v3.AccessLogFilter",
        "AccessLogType": "envoy.data.accesslog.v3.AccessLogType",
        "AndFilter": "envoy.config.accesslog.v3.AndFilter",
        "ComparisonFilter": "envoy.config.accesslog.v3.ComparisonFilter",
        "ExpressionFilter": "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
        "ExtensionFilter": "envoy.config.accesslog.v3.ExtensionFilter",
        "FileAccessLog": "envoy.extensions.access_loggers.file.v3.FileAccessLog",
        "HeaderFilter": "envoy.config.accesslog.v3.HeaderFilter",
        "HistogramBucketSettings": "envoy.config.metrics.v3.HistogramBucketSettings",
        "LogTypeFilter": "envoy.config.accesslog.v3.LogTypeFilter",
        "ConversionAction": "envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig.ConversionAction",
        "DropAction": "envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig.DropAction",
        "OpenTelemetryAccessLog": ("envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig"),
        "OpenTelemetrySink": "envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfig",
        "OrFilter": "envoy.config.accesslog.v3.OrFilter",
        "ResponseFlagFilter": "envoy.config.accesslog.v3.ResponseFlagFilter",
        "RuntimeFilter": "envoy.config.accesslog.v3.RuntimeFilter",
        "StaticResourceDetector": (
            "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfig"
        ),
        "StatNameInput": "envoy.extensions.matching.common_inputs.stats.v3.StatFullNameMatchInput",
        "StatsAccessLog": "envoy.extensions.access_loggers.stats.v3.Config",
        "StatsConfig": "envoy.config.metrics.v3.StatsConfig",
        "StatsMatcher": "envoy.config.metrics.v3.StatsMatcher",
        "StatsScope": "envoy.type.v3.Scope",
        "StatsSink": "envoy.config.metrics.v3.StatsSink",
        "StatusCodeFilter": "envoy.config.accesslog.v3.StatusCodeFilter",
        "StderrAccessLog": "envoy.extensions.access_loggers.stream.v3.StderrAccessLog",
        "TagSpecifier": "envoy.config.metrics.v3.TagSpecifier",
        "ExportLogsServiceRequest": "opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest",
        "ExportMetricsServiceRequest": "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest",
        "ExportMetricsServiceResponse": "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceResponse",
        "AggregationTemporality": "opentelemetry.proto.metrics.v1.AggregationTemporality",
        "AnyValue": "opentelemetry.proto.common.v1.AnyValue",
        "HistogramDataPoint": "opentelemetry.proto.metrics.v1.HistogramDataPoint",
        "KeyValue": "opentelemetry.proto.common.v1.KeyValue",
        "Metric": "opentelemetry.proto.metrics.v1.Metric",
        "NumberDataPoint": "opentelemetry.proto.metrics.v1.NumberDataPoint",
        "ResourceMetrics": "opentelemetry.proto.metrics.v1.ResourceMetrics",
        "ScopeMetrics": "opentelemetry.proto.metrics.v1.ScopeMetrics",
        # values and matchers
        "Any": "google.protobuf.Any",
        "BoolValue": "google.protobuf.BoolValue",
        "BytesValue": "google.protobuf.BytesValue",
        "CodecClientType": "envoy.type.v3.CodecClientType",
        "DoubleRange": "envoy.type.v3.DoubleRange",
        "DoubleValue": "google.protobuf.DoubleValue",
        "Duration": "google.protobuf.Duration",
        "Empty": "google.protobuf.Empty",
        "FilterStateMatcher": "envoy.type.matcher.v3.FilterStateMatcher",
        "HttpRequestHeaderInput": "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
        "FractionalPercent": "envoy.type.v3.FractionalPercent",
        "Int32Range": "envoy.type.v3.Int32Range",
        "Int64Range": "envoy.type.v3.Int64Range",
        "ListStringMatcher": "envoy.type.matcher.v3.ListStringMatcher",
        "ListValue": "google.protobuf.ListValue",
        "MetadataMatcher": "envoy.type.matcher.v3.MetadataMatcher",
        "MetadataKey": "envoy.type.metadata.v3.MetadataKey",
        "NullValue": "google.protobuf.NullValue",
        "PathMatcher": "envoy.type.matcher.v3.PathMatcher",
        "Percent": "envoy.type.v3.Percent",
        "RegexMatchAndSubstitute": "envoy.type.matcher.v3.RegexMatchAndSubstitute",
        "RegexMatcher": "envoy.type.matcher.v3.RegexMatcher",
        "StringMatcher": "envoy.type.matcher.v3.StringMatcher",
        "StringValue": "google.protobuf.StringValue",
        "Struct": "google.protobuf.Struct",
        "Timestamp": "google.protobuf.Timestamp",
        "TokenBucket": "envoy.type.v3.TokenBucket",
        "UInt32Value": "google.protobuf.UInt32Value",
        "UInt64Value": "google.protobuf.UInt64Value",
        "Value": "google.protobuf.Value",
        "ValueMatcher": "envoy.type.matcher.v3.ValueMatcher",
        "XdsMatcher": "xds.type.matcher.v3.Matcher",
        "XdsRegexMatcher": "xds.type.matcher.v3.RegexMatcher",
        "XdsStringMatcher": "xds.type.matcher.v3.StringMatcher",
        "XdsTypedExtension": "xds.core.v3.TypedExtensionConfig",
    }
)


@cache
def pool() -> DescriptorPool:
    """Return the private descriptor pool of all messages that `NAMES` needs; it is built on first use."""
    descriptors = DescriptorPool()
    blob = zlib.decompress(files("headgate.envoy").joinpath(BLOB).read_bytes())
    for file in FileDescriptorSet.FromString(blob).file:
        descriptors.AddSerializedFile(file.SerializeToString())
    return descriptors


@cache
def find(name: str) -> type[Message] | EnumTypeWrapper:
    """Return the class (or the enum) of a short name. Raises KeyError if `NAMES` does not contain it."""
    full_name = NAMES[name]
    try:
        return GetMessageClass(pool().FindMessageTypeByName(full_name))
    except KeyError:
        return EnumTypeWrapper(pool().FindEnumTypeByName(full_name))
