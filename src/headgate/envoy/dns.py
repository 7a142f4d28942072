"""Clusters of names outside the mesh, which the proxy resolves itself (R5)."""

from headgate.envoy import clusters, mirrors, pb
from headgate.envoy.plan import ClusterPlan

QUERY_SECONDS = 2
QUERY_TRIES = 2
"""A cluster becomes active with the first answer of DNS. A name without an answer holds up others for this long only."""
_TYPE = "envoy.cluster.dns"
_RESOLVER = "envoy.network.dns_resolver.cares"


def cluster(plan: ClusterPlan) -> pb.Cluster:
    """Return the cluster of one name; each new connection goes to an address that DNS gives at that time."""
    render = mirrors.mirror_cluster if plan.copies else clusters.cluster
    found = render(plan.name, plan.protocol)
    found.ClearField("eds_cluster_config")
    found.ClearField("common_lb_config")
    found.cluster_type.CopyFrom(pb.Cluster.CustomClusterType(name=_TYPE, typed_config=pb.pack(_resolution())))
    found.load_assignment.CopyFrom(clusters.assignment(plan))
    return found


def _resolution() -> pb.DnsCluster:
    resolver = pb.CaresDnsResolver(
        # The name is a whole one: the machine's search domains would make another one of it.
        dns_resolver_options=pb.DnsResolverOptions(no_default_search_domain=True),
        query_timeout_seconds=pb.UInt64Value(value=QUERY_SECONDS),
        query_tries=pb.UInt32Value(value=QUERY_TRIES),
    )
    return pb.DnsCluster(
        respect_dns_ttl=True,
        typed_dns_resolver_config=pb.TypedExtensionConfig(name=_RESOLVER, typed_config=pb.pack(resolver)),
        dns_lookup_family=pb.DnsLookupFamily.ALL,
        all_addresses_in_single_endpoint=True,
    )
