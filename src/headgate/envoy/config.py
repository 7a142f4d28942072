"""What a proxy is to hold: named resources by type, as bytes, each with a digest of its content."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SCOPES = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  # names a type

ORDER = (RUNTIME, CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES, SCOPES)
"""All types, in the order in which a proxy is sent them."""
TypeUrl: TypeAlias = str


class Encoded(NamedTuple):
    """One resource: `body` is a serialised `envoy.service.discovery.v3.Resource`, `digest` its version.

    `needs` are the clusters that a proxy must hold before it gets this resource.
    """

    body: bytes
    digest: str
    needs: frozenset[str] = frozenset()


ProxyConfig: TypeAlias = Mapping[TypeUrl, Mapping[str, Encoded]]
