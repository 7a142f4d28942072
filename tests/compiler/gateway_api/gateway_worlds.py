"""Random routes and Gateways; names repeat often, and invalid values occur."""

from typing import Any

from hypothesis import strategies as st
from tests.make import objects
from tests.make.objects import Object
from tests.make.strategies import ORDERS, picked, subsets
from tests.properties.worlds import EVENLY, MOSTLY, NAMESPACES, SELDOM, TIMES, World, keyed, named, worlds

SERVICES = ("a", "b", "c", "a", "b", "c", "svc", "gone", "dns")
PORTS = (8080, 8080, 80)
PERCENTS: tuple[Object, ...] = (
    {},
    {"percent": 0},
    {"percent": 42},
    {"fraction": {"numerator": 1, "denominator": 3}},
    {"fraction": {}},
)
REFERENCE = (SERVICES, PORTS, SELDOM, NAMESPACES, SELDOM)
"""The choices for `reference`."""
BACKENDS = picked(*REFERENCE, ({}, {"weight": 0}, {"weight": 3}, {"weight": 1_000_000}))
MIRRORS = picked(*REFERENCE, PERCENTS)
MATCHES = picked(
    SELDOM,
    ("Exact", "PathPrefix"),
    ("/", "/a", "/a/", "/a/b", "/b"),
    ({}, {}, {"method": "GET"}, {"method": "POST"}),
    ((), (), ("a",), ("B", "a")),
)
RULE_SIZES = picked((0, 1, 2), SELDOM, (0, 1, 2, 3), (0, 1, 2))
PARENTS = picked(
    EVENLY,
    SERVICES,
    ({}, {"port": 8080}),
    ("edge", "edge", "late", "gone"),
    (*["Gateway"] * 3, "ListenerSet"),
    SELDOM,
    NAMESPACES,
    ({}, {}, {"sectionName": "l0"}, {"port": 8080}),
)
ROUTE_FIELDS = picked(
    ("HTTPRoute", "HTTPRoute", "HTTPRoute", "TLSRoute", "UDPRoute"),
    NAMESPACES,
    TIMES,
    subsets(("*.example", "a.example", "b.example", "other.org"), most=3),
    (1, 2, 3),
)
GATEWAY_FIELDS = picked(
    MOSTLY,
    subsets(("", "*.example", "a.example"), least=1),
    *((8080, 8080, 9090), EVENLY) * 3,
    SELDOM,
    EVENLY,
    ("10.2.0.1", "10.2.0.1", "10.2.0.2", "10.0.0.1", ""),
    TIMES,
)

SET_FIELDS = picked(
    EVENLY,
    NAMESPACES,
    TIMES,
    ("edge", "edge", "late", "gone"),
    (8080, 8080, 9090, 8443),
    ("HTTP", "HTTP", "HTTP", "TCP"),
    subsets(("", "*.example", "a.example", "b.example"), least=1),
    EVENLY,
)
ALLOWED_SETS = st.sampled_from(({}, {"from": "Same"}, {"from": "All"}, {"from": "All"}))
TLS_HOSTS = st.sampled_from(subsets(("", "*.example", "a.example"), most=2))
DNS = (
    objects.service("dns", {"name": "dns", "port": 8080, "protocol": "UDP"}, clusterIP="None"),
    objects.endpoint_slice("dns", ["10.1.9.1"], {"dns": 5353}),
)
"""A Service with a UDP port, which UDPRoutes may name."""


def reference(name: str, port: int, is_elsewhere: bool, namespace: str, is_unknown: bool) -> Object:
    """Return a reference to a backend, of an unknown kind if `is_unknown`."""
    written: Object = {"name": name, "port": port}
    written |= {"namespace": namespace} if is_elsewhere else {}
    return written | ({"kind": "Bucket", "group": "example.com"} if is_unknown else {})


@st.composite
def matches(draw: st.DrawFn) -> Object:
    """Draw a match of an HTTPRoute's rule."""
    is_regex, kind, path, method, headers = draw(MATCHES)
    written: Object = {"path": {"type": kind, "value": path}, **method}
    if is_regex:
        written["path"] = {"type": "RegularExpression", "value": "/[a-z]+"}
    return written | ({"headers": [{"name": name, "value": "1"} for name in headers]} if headers else {})


@st.composite
def rules(draw: st.DrawFn) -> Object:
    """Draw a rule of an HTTPRoute."""
    mirrors, has_extension, backends, conditions = draw(RULE_SIZES)
    filters: list[Any] = []
    for *target, share in (draw(MIRRORS) for _ in range(mirrors)):
        filters.append({"type": "RequestMirror", "requestMirror": {"backendRef": reference(*target), **share}})
    if has_extension:
        filters.append({"type": "ExtensionRef", "extensionRef": {"group": "example.com", "kind": "X", "name": "x"}})
    return {
        "matches": [draw(matches()) for _ in range(conditions)],
        "filters": filters,
        "backendRefs": [reference(*target) | weight for *target, weight in (draw(BACKENDS) for _ in range(backends))],
    }


def parent(of: tuple[Any, ...]) -> Object:
    """Return a parentRef with drawn values of `PARENTS`: to a Service, a Gateway or a ListenerSet."""
    is_service, service, port, gateway, kind, is_elsewhere, namespace, part = of
    if is_service:
        return {"group": "", "kind": "Service", "name": service, **port}
    if kind == "ListenerSet":
        return {"kind": kind, "name": {"edge": "s0"}.get(gateway, "s1"), "namespace": namespace, **part}
    return {"name": gateway, **({"namespace": namespace} if is_elsewhere else {}), **part}


@st.composite
def routes(draw: st.DrawFn, name: str) -> Object:
    """Draw an HTTPRoute, a TLSRoute or a UDPRoute with one parent."""
    kind, namespace, created, hosts, size = draw(ROUTE_FIELDS)
    if kind != "HTTPRoute":
        rule = {"backendRefs": [reference(*target) | weight for *target, weight in (draw(BACKENDS),)]}
        spec = {"parentRefs": [{"name": "edge"}], "rules": [rule]}
        spec |= {"hostnames": list(hosts)} if kind == "TLSRoute" else {}
        return named(kind, namespace, name, spec=spec, metadata={"creationTimestamp": created})
    spec = {
        "parentRefs": [parent(draw(PARENTS))],
        "hostnames": list(hosts),
        "rules": [draw(rules()) for _ in range(size)],
    }
    return named("HTTPRoute", namespace, name, spec=spec, metadata={"creationTimestamp": created})


@st.composite
def gateways(draw: st.DrawFn, name: str) -> list[Object]:
    """Draw a Gateway, or none."""
    exists, hosts, *ports, has_tcp, has_udp, address, created = draw(GATEWAY_FIELDS)
    listeners = [
        {"name": f"l{index}", "port": ports[2 * index], "protocol": "HTTP"}
        | ({"hostname": host} if host else {})
        | ({"allowedRoutes": {"namespaces": {"from": "All"}}} if ports[2 * index + 1] else {})
        for index, host in enumerate(hosts)
    ]
    if has_tcp:
        listeners.append({"name": "raw", "port": 9090, "protocol": "TCP"})
    if has_udp:
        listeners.append({"name": "datagrams", "port": 9090, "protocol": "UDP"})
    listeners += [
        {"name": f"tls{index}", "port": 8443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
        | ({"hostname": host} if host else {})
        for index, host in enumerate(draw(TLS_HOSTS))
    ]
    drawn = named(
        "Gateway",
        "default",
        name,
        spec={
            "gatewayClassName": "headgate",
            "listeners": listeners,
            "allowedListeners": {"namespaces": draw(ALLOWED_SETS)},
        },
        status={"addresses": [{"value": address}] if address else []},
        metadata={"creationTimestamp": created},
    )
    return [drawn] if exists else []


@st.composite
def listener_sets(draw: st.DrawFn, name: str) -> list[Object]:
    """Draw a ListenerSet, or none."""
    exists, namespace, created, gateway, port, protocol, hosts, is_open = draw(SET_FIELDS)
    listeners = [
        {"name": f"l{index}", "port": port, "protocol": protocol}
        | ({"hostname": host} if host and protocol == "HTTP" else {})
        | ({"allowedRoutes": {"namespaces": {"from": "All"}}} if is_open else {})
        for index, host in enumerate(hosts if protocol == "HTTP" else hosts[:1])
    ]
    spec = {"parentRef": {"name": gateway, "namespace": "default"}, "listeners": listeners}
    drawn = named("ListenerSet", namespace, name, spec=spec, metadata={"creationTimestamp": created})
    return [drawn] if exists else []


@st.composite
def gateway_worlds(draw: st.DrawFn) -> World:
    """Draw objects by key, in random order: Services, splits, grants, Gateways, ListenerSets and routes."""
    drawn = [*draw(worlds()).values(), *draw(gateways("edge")), *draw(gateways("late"))]
    drawn += [*draw(listener_sets("s0")), *draw(listener_sets("s1"))]
    drawn += [draw(routes(f"r{index}")) for index in range(draw(st.integers(1, 4)))]
    return keyed(drawn, draw(ORDERS))
