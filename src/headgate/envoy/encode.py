"""A View to the bytes that its proxy is to hold."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from google.protobuf.message import Message

from headgate.envoy import clusters, connections, gateways, listeners, mirrors, names, pb, routes, secrets
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Encoded, ProxyConfig, TypeUrl
from headgate.envoy.parts import Part
from headgate.envoy.plan import ClusterPlan, RoutePlan, plan
from headgate.envoy.view import Node, View
from headgate.model.refs import PortRef
from headgate.model.routing import Frontend

DIGEST_BYTES = 12


class Placed(NamedTuple):
    """One encoded resource, and where in a configuration it belongs."""

    type_url: TypeUrl
    name: str
    encoded: Encoded


class Memo:
    """Encoded resources by the value that they came from; what the last build did not use is dropped."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Placed, ...]] = {}
        self._used: dict[Hashable, tuple[Placed, ...]] = {}
        self.encoded = 0  # resources encoded anew, ever: the cost of a change, counted

    def turn(self) -> None:
        """Begin a new build."""
        self._kept, self._used = self._used, {}

    def get(self, key: Hashable, make: Callable[[], Iterable[Part]]) -> tuple[Placed, ...]:
        """Return what was encoded from an equal key, or encode it now."""
        found = self._used.get(key) or self._kept.get(key)
        if found is None:
            found = tuple(_encode(part) for part in make())
            self.encoded += len(found)
        self._used[key] = found
        return found


def encode(view: View, memo: Memo) -> ProxyConfig:
    """Encode everything that a proxy is to hold; equal parts come out of the memo as the same bytes."""
    config: dict[TypeUrl, dict[str, Encoded]] = {
        type_url: {} for type_url in (CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES, SCOPES)
    }
    for group in _encoded(view, memo):
        for type_url, name, encoded in group:
            config[type_url][name] = encoded
    return config


def _encoded(view: View, memo: Memo) -> Iterator[tuple[Placed, ...]]:
    """Yield tables resource by resource, as their parts change apart, and frontends as a whole, which rarely change."""
    for part in (*_of_tables(view), *_of_gateways(view), *_of_node(view.node)):
        yield memo.get(part, partial(_alone, part))
    for front in view.mesh.frontends:
        with_requests = tuple(port for port in front.ports if view.has_requests(PortRef(front.service, port)))
        key = front, with_requests, view.mesh.domain, bool(view.node.proxy_port)
        yield memo.get(key, partial(_of_frontend, *key))


def _alone(part: Part) -> tuple[Part]:
    return (part,)


def _of_tables(view: View) -> Iterator[Part]:
    for table in view.mesh.tables:
        route, wanted = plan(table, view.ready, view.protocols)
        if table.protocol.is_http:
            yield _of_requests(view, table.ref, route)
        else:
            yield from _of_connections(view, table.ref, route)
        yield from _of_clusters(wanted)


def _of_requests(view: View, ref: PortRef, route: RoutePlan) -> Part:
    if not view.node.proxy_port:
        return Part(ROUTES, route.name, routes.routes, (route,), route.clusters)
    address = view.addresses.get(ref, "")
    authority = f"{address}:{ref.port}" if address else ""
    return Part(ROUTES, route.name, connections.with_tunnel, (route, authority), route.clusters)


def _of_connections(view: View, ref: PortRef, route: RoutePlan) -> Iterator[Part]:
    if address := view.addresses.get(ref):
        arguments = (route.name, address, ref.port, route.draws[-1].clusters)
        yield Part(LISTENER, route.name, connections.listener, arguments, route.clusters)
    yield Part(ROUTES, route.name, connections.routes, (route,), route.clusters)


def _of_gateways(view: View) -> Iterator[Part]:
    for port in view.mesh.gateways:
        found = gateways.plan(port, view.ready, view.protocols)
        yield from _of_clusters(found.clusters)
        listener, hosts = found.listener, found.routes
        yield Part(LISTENER, listener.name, gateways.listener, (listener,), listener.needs)
        if hosts:
            yield Part(ROUTES, hosts.name, gateways.configuration, (hosts,), hosts.needs)
        for _, shown in port.tls:
            name = names.secret(shown.secret)
            yield Part(SECRET, name, secrets.certificate, (name, shown.chain, shown.key))


def _of_clusters(wanted: Iterable[ClusterPlan]) -> Iterator[Part]:
    for item in wanted:
        if item.copies:
            yield Part(CLUSTER, item.name, mirrors.mirror_cluster, (item.name, item.protocol))
        else:
            yield Part(CLUSTER, item.name, clusters.cluster, (item.name, item.protocol))
        yield Part(ENDPOINTS, item.name, clusters.assignment, (item,))


def _of_frontend(
    front: Frontend,
    with_requests: tuple[int, ...],
    domain: str,
    proxied: bool,  # noqa: FBT001  # its arguments are a key
) -> Iterator[Part]:
    for port in with_requests:
        name = names.outbound(PortRef(front.service, port))
        if front.address and port not in front.unbindable:
            yield Part(LISTENER, name, listeners.service_listener, (name, front.address, port))
    for authority, port in names.authorities(front, domain) if proxied else ():
        ref = PortRef(front.service, port)
        name = names.host(ref, authority)
        yield Part(SCOPES, name, routes.scope, (name, authority, names.outbound(ref)))


def _of_node(node: Node) -> Iterator[Part]:
    if node.proxy_port:
        yield Part(CLUSTER, names.TUNNEL, connections.tunnel, ())
        yield Part(LISTENER, names.PROXY, listeners.proxy_listener, (node.proxy_address, node.proxy_port))
    if node.probe:
        yield Part(LISTENER, names.PROBE, listeners.probe_listener, (node.probe,))


def _encode(part: Part) -> Placed:
    encoded = encode_resource(part.name, part.render(*part.arguments), frozenset(part.needs))
    return Placed(part.type_url, part.name, encoded)


def encode_resource(name: str, message: Message, needs: frozenset[str] = frozenset()) -> Encoded:
    """Serialise one resource; its version is a digest of its content, so equal content is never news."""
    packed = pb.pack(message)
    digest = blake2b(packed.value, digest_size=DIGEST_BYTES).hexdigest()
    body = pb.Resource(name=name, version=digest, resource=packed).SerializeToString(deterministic=True)
    return Encoded(body, digest, needs)
