"""Render the way to a listener inside the proxy: filters of the first connection choose what the second one does.

The first connection passes filter state to the listener: the value must be shared (`filter_state.value`).
"""

from headgate.envoy import pb
from headgate.envoy.clusters import CONNECT_SECONDS
from headgate.envoy.resilience import unlimited


def cluster(name: str) -> pb.Cluster:
    """Return the cluster whose only endpoint is the listener `name` in the same proxy."""
    address = pb.Address(envoy_internal_address=pb.EnvoyInternalAddress(server_listener_name=name))
    endpoint = pb.LbEndpoint(endpoint=pb.Endpoint(address=address))
    raw = pb.TransportSocket(name="raw", typed_config=pb.pack(pb.RawBuffer()))
    return pb.Cluster(
        name=name,
        type=pb.Cluster.DiscoveryType.STATIC,
        # Without this, Envoy opens a connection with the filter state of another one, and so with another identity.
        connection_pool_per_downstream_connection=True,
        connect_timeout=pb.Duration(seconds=CONNECT_SECONDS),
        circuit_breakers=unlimited(),
        load_assignment=pb.ClusterLoadAssignment(
            cluster_name=name, endpoints=[pb.LocalityLbEndpoints(lb_endpoints=[endpoint])]
        ),
        transport_socket=pb.TransportSocket(
            name="internal", typed_config=pb.pack(pb.InternalUpstream(transport_socket=raw))
        ),
    )
