"""Random worlds; names repeat often, and invalid values occur."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from hypothesis import strategies as st
from tests.make.objects import Object, endpoint, endpoint_slice, headgate_keys, obj
from tests.make.strategies import ORDERS, ordered, picked, subsets

from headgate.resources.meta import Key
from headgate.resources.registry import key_of as key_of  # noqa: PLC0414 - other modules import it with `named`

World: TypeAlias = dict[Key, Object]
PLACES = (("default", "a"), ("default", "b"), ("default", "c"), ("blue", "a"), ("svc", "b"), ("default", "svc"))
NAMESPACES = ("default",) * 8 + ("blue", "svc")
NAMES = ("a", "b", "c", "svc")
PORTS = (8080, 8080, 80)
TIMES = ("", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
WEIGHTS = st.integers(0, 2**31).map(lambda drawn: drawn // 2 if drawn % 2 else drawn // 2 % 4)
QUANTITIES = (0, "0m", "10m", "1500m", 1, "1.5", "2k")
ADDRESSES = ("", "None", "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::1:8080")
ROOTS = ("a", "a", "a", "a", "b", "c", "a.default", "b.default.svc", "c.default.svc.cluster.local", "b.svc", "a.blue")
BACKENDS = ("b", "c", "svc", "b", "c", "svc", "a", "a.blue", "b.svc", "gone")
ACCOUNTS = ("a", "a", "b")
LABELS: tuple[dict[str, str], ...] = ({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"})
RULES: tuple[Object, ...] = (
    *({"kind": "HTTPRouteGroup", "name": "g"},) * 4,
    *({"kind": "TCPRoute", "name": "t"},) * 4,
    {"kind": "HTTPRouteGroup", "name": "g", "matches": ["m"]},
    {"kind": "HTTPRouteGroup", "name": "g", "matches": ["gone"]},
    {"kind": "UDPRoute", "name": "u"},
    {"kind": "Route", "name": "t"},
)
EVENLY = (False, True)
MOSTLY = (True,) * 7 + (False,)
SELDOM = (False,) * 15 + (True,)

SERVICE_FIELDS = picked(
    MOSTLY,
    ((8080,), (8080,), (8080,), (8080,), (80, 8080), (80,), (8080, 8080), ()),
    SELDOM,
    SELDOM,
    ADDRESSES,
    ("api.example.com", "localhost"),
    TIMES,
)
SLICE_FIELDS = picked(MOSTLY, (0, 1), (0, 1, 1, 2, 3), PORTS, PORTS, PORTS)
ENDPOINT_FIELDS = picked(range(1, 10), ({}, {}, {"ready": True}, {"ready": False}, {"ready": None}), MOSTLY, NAMESPACES)
SPLIT_FIELDS = picked(
    SELDOM,
    SELDOM,
    ROOTS,
    NAMESPACES,
    NAMES,
    TIMES,
    ("", "fail"),
    ("", "true"),
    ("", "", "", "cookie:side", "header:x-user", "source"),
)
SPLIT_BACKENDS = st.lists(st.sampled_from(BACKENDS), min_size=1, max_size=4, unique=True)
GRANT_FIELDS = picked(NAMESPACES, NAMESPACES, ({}, {"name": "a"}))
POD_FIELDS = picked(
    range(1, 10),
    (
        {},
        {"sidecar_mode": "transparent"},
        {"sidecar_mode": "transparent"},
        {"sidecar_mode": "transparent"},
        {"sidecar_mode": "transparent", "excluded_inbound_ports": "80,9"},
        {"sidecar_mode": "explicit", "application_ports": "8080=20417,80=8080"},
        {"sidecar_mode": "explicit"},
    ),
    ([], *([{"containerPort": number, "name": name}] for number in PORTS for name in ("http-x", "tcp-x", "x"))),
    ({}, *({"readinessProbe": {"httpGet": {"port": port}}} for port in (8080, "http-x", "gone"))),
    ("own", "own", "10.1.0.1", ""),
    NAMESPACES,
    LABELS,
    TIMES,
    ACCOUNTS,
    ("Running", "Running", "Pending", "Failed"),
)
TLS_CONFIG_FIELDS = picked(NAMESPACES, NAMES, LABELS, subsets(("foo", "bar", "*.example.com", "No Name"), most=2))
TARGET_FIELDS = picked(
    NAMESPACES, NAMES, ACCOUNTS, ({}, {}, {"port": 8080}), (["a"], ["a", "b"], []), (0, 1, 2), RULES, RULES
)
RULE_ROUTE_FIELDS = picked(EVENLY, NAMESPACES, ([], [8080], [80], [8080, 80], [8080, 8080]))
PROTOCOLS = picked(*(("", "http", "tcp"),) * len(PLACES))


def named(kind: str, namespace: str, name: str, **more: Any) -> Object:
    """Return an object."""
    return obj(kind, name, namespace=namespace, **more)


@st.composite
def services(draw: st.DrawFn) -> list[Object]:
    """Draw a Service for most of the places."""
    drawn = []
    for namespace, name in PLACES:
        exists, numbers, is_udp, is_external, address, external, created = draw(SERVICE_FIELDS)
        ports = [
            {"name": f"p{index}", "port": port, "protocol": "UDP" if is_udp and not index else "TCP"}
            for index, port in enumerate(numbers)
        ]
        spec = {
            "clusterIP": address,
            "type": "ExternalName" if is_external else "ClusterIP",
            "externalName": external,
            "ports": ports,
        }
        if exists:
            drawn.append(named("Service", namespace, name, spec=spec, metadata={"creationTimestamp": created}))
    return drawn


@st.composite
def slices(draw: st.DrawFn, namespace: str, name: str) -> list[Object]:
    """Draw an EndpointSlice of a Service, or none."""
    exists, number, size, *ports = draw(SLICE_FIELDS)
    places = []
    for _ in range(size if exists else 0):
        host, conditions, has_pod, of = draw(ENDPOINT_FIELDS)
        pod = f"pod-{host}" if has_pod else ""
        places.append(endpoint(f"10.1.0.{host}", pod, namespace=of, conditions=conditions))
    numbers = {f"p{index}": port for index, port in enumerate(ports)}
    drawn = endpoint_slice(name, places, numbers, name=f"{name}-{number}", namespace=namespace)
    return [drawn] if exists else []


@st.composite
def splits(draw: st.DrawFn) -> Object:
    """Draw a TrafficSplit, sometimes of an old version."""
    is_old, has_matches, root, namespace, name, created, *texts = draw(SPLIT_FIELDS)
    keys = ("no_endpoints", "allow_self_reference", "sticky")
    annotations = headgate_keys(**{key: text for key, text in zip(keys, texts, strict=True) if text})
    weights = st.sampled_from(QUANTITIES) if is_old else WEIGHTS
    backends = [{"service": backend, "weight": draw(weights)} for backend in draw(SPLIT_BACKENDS)]
    matches = {"matches": [{"kind": "HTTPRouteGroup", "name": "g"}]} if has_matches and not is_old else {}
    return named(
        "TrafficSplit",
        namespace,
        name,
        version="split.smi-spec.io/v1alpha1" if is_old else "",
        annotations=annotations,
        metadata={"creationTimestamp": created},
        spec={"service": root, "backends": backends, **matches},
    )


@st.composite
def grants(draw: st.DrawFn) -> Object:
    """Draw a ReferenceGrant for TrafficSplits."""
    namespace, of, named_target = draw(GRANT_FIELDS)
    source = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": of}
    spec = {"from": [source], "to": [{"group": "", "kind": "Service"} | named_target]}
    return named("ReferenceGrant", namespace, "g", spec=spec)


@st.composite
def pods(draw: st.DrawFn) -> Object:
    """Draw a pod with an address from the slices, sometimes with the address of another pod, or none."""
    number, keys, ports, probe, address, namespace, labels, created, account, phase = draw(POD_FIELDS)
    return named(
        "Pod",
        namespace,
        f"pod-{number}",
        labels=labels,
        annotations=headgate_keys(**keys),
        metadata={"creationTimestamp": created},
        spec={"serviceAccountName": account, "containers": [{"name": "app", "ports": ports, **probe}]},
        status={"podIP": f"10.1.0.{number}" if address == "own" else address, "phase": phase},
    )


@st.composite
def tls_configs(draw: st.DrawFn) -> Object:
    """Draw a TLSConfig."""
    namespace, name, labels, subjects = draw(TLS_CONFIG_FIELDS)
    spec = {"selector": {"matchLabels": labels}, "subjectNames": list(subjects)}
    return named("TLSConfig", namespace, name, spec=spec)


@st.composite
def targets(draw: st.DrawFn) -> Object:
    """Draw a TrafficTarget."""
    namespace, name, account, port, callers, size, *rules = draw(TARGET_FIELDS)
    sources = [{"kind": "ServiceAccount", "name": caller} for caller in callers]
    destination = {"kind": "ServiceAccount", "name": account, **port}
    spec = {"destination": destination, "sources": sources, "rules": rules[:size]}
    return named("TrafficTarget", namespace, name, spec=spec)


@st.composite
def rule_routes(draw: st.DrawFn) -> Object:
    """Draw a TCPRoute or an HTTPRouteGroup."""
    is_tcp, namespace, ports = draw(RULE_ROUTE_FIELDS)
    if is_tcp:
        return named("TCPRoute", namespace, "t", spec={"matches": {"ports": ports}})
    return named("HTTPRouteGroup", namespace, "g", spec={"matches": [{"name": "m", "pathRegex": "/x"}]})


def keyed(objects: Iterable[Object], seed: int) -> World:
    """Return objects by key, in an order that depends on a drawn seed."""
    return {key_of(drawn): drawn for drawn in ordered(objects, seed)}


_SLICES = [slices(*place) for place in PLACES * 2]
_SPLITS = st.lists(splits(), min_size=1, max_size=4)
_GRANTS = st.lists(grants(), max_size=2)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw objects by key, in random order."""
    drawn = draw(services())
    for several in (*_SLICES, _SPLITS, _GRANTS):
        drawn += draw(several)
    return keyed(drawn, draw(ORDERS))


_WORLDS = worlds()
_POLICIES = [
    st.lists(kind, min_size=1, max_size=3) for kind in (pods(), pods(), tls_configs(), targets(), rule_routes())
]


@st.composite
def meshes(draw: st.DrawFn) -> World:
    """Draw worlds with pods that have sidecars, and with policies."""
    protocols = dict(zip(PLACES, draw(PROTOCOLS), strict=True))
    drawn = [_with_protocols(written, protocols) for written in draw(_WORLDS).values()]
    for several in _POLICIES:
        drawn += draw(several)
    return keyed(drawn, draw(ORDERS))


def _with_protocols(written: Object, protocols: dict[tuple[str, str], str]) -> Object:
    key = key_of(written)
    if key.kind != "Service" or not (app := protocols[key.namespace, key.name]):
        return written
    spec = written["spec"]
    return written | {"spec": spec | {"ports": [port | {"appProtocol": app} for port in spec["ports"]]}}
