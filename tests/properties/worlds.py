"""Random worlds; names repeat often, and invalid values occur."""

from hypothesis import strategies as st

from headgate.resources.registry import KINDS, find_written
from headgate.resources.routes import TCPRoute as GatewayTCPRoute

PLACES = (("default", "a"), ("default", "b"), ("default", "c"), ("blue", "a"), ("svc", "b"), ("default", "svc"))
NAMESPACES = st.sampled_from(("default",) * 8 + ("blue", "svc"))
NAMES = st.sampled_from(("a", "b", "c", "svc"))
PORTS = st.sampled_from((8080, 8080, 80))
TIMES = st.sampled_from(("", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"))
WEIGHTS = st.one_of(st.integers(0, 3), st.integers(0, 2**30))
QUANTITIES = st.sampled_from((0, "0m", "10m", "1500m", 1, "1.5", "2k"))
ADDRESSES = st.sampled_from(("", "None", "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::1:8080"))
ROOTS = st.sampled_from(
    ("a", "a", "a", "a", "b", "c", "a.default", "b.default.svc", "c.default.svc.cluster.local", "b.svc", "a.blue")
)
BACKENDS = st.sampled_from(("b", "c", "svc", "b", "c", "svc", "a", "a.blue", "b.svc", "gone"))
ACCOUNTS = st.sampled_from(("a", "a", "b"))
PROTOCOLS = st.sampled_from(("", "http", "tcp"))
LABELS = st.sampled_from(({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}))
RULES = st.sampled_from(
    (
        *({"kind": "HTTPRouteGroup", "name": "g"},) * 4,
        *({"kind": "TCPRoute", "name": "t"},) * 4,
        {"kind": "HTTPRouteGroup", "name": "g", "matches": ["m"]},
        {"kind": "HTTPRouteGroup", "name": "g", "matches": ["gone"]},
        {"kind": "UDPRoute", "name": "u"},
        {"kind": "Route", "name": "t"},
    )
)
MOSTLY = st.integers(0, 7).map(lambda drawn: drawn != 3)
SELDOM = st.integers(0, 15).map(lambda drawn: drawn == 7)


def named(kind, namespace, name, **more):
    known = next(
        item for item in KINDS if (item.kind, item.shape) != ("TCPRoute", GatewayTCPRoute) and item.kind == kind
    )
    metadata = {"name": name, "namespace": namespace, **more.pop("metadata", {})}
    return {"apiVersion": known.hub, "kind": kind, "metadata": metadata, **more}


@st.composite
def services(draw, namespace, name):
    numbers = draw(st.sampled_from(((8080,), (8080,), (8080,), (8080,), (80, 8080), (80,), (8080, 8080), ())))
    ports = [
        {"name": f"p{index}", "port": port, "protocol": "UDP" if draw(SELDOM) else "TCP"}
        for index, port in enumerate(numbers)
    ]
    spec = {
        "clusterIP": draw(ADDRESSES),
        "type": "ExternalName" if draw(SELDOM) else "ClusterIP",
        "externalName": draw(st.sampled_from(("api.example.com", "localhost"))),
        "ports": ports,
    }
    return named("Service", namespace, name, spec=spec, metadata={"creationTimestamp": draw(TIMES)})


@st.composite
def slices(draw, namespace, name):
    ready = st.sampled_from(({}, {}, {"ready": True}, {"ready": False}, {"ready": None}))
    endpoints = []
    for _ in range(draw(st.sampled_from((0, 1, 1, 2, 3)))):
        number = draw(st.integers(1, 9))
        endpoint = {"addresses": [f"10.1.0.{number}"], "conditions": draw(ready)}
        if draw(MOSTLY):
            endpoint["targetRef"] = {"kind": "Pod", "namespace": draw(NAMESPACES), "name": f"pod-{number}"}
        endpoints.append(endpoint)
    return named(
        "EndpointSlice",
        namespace,
        f"{name}-{draw(st.integers(0, 1))}",
        metadata={"labels": {"kubernetes.io/service-name": name}},
        addressType="IPv4",
        endpoints=endpoints,
        ports=[{"name": f"p{index}", "port": draw(PORTS)} for index in range(3)],
    )


@st.composite
def splits(draw):
    old = draw(SELDOM)
    backends = draw(st.lists(BACKENDS, min_size=1, max_size=4, unique=True))
    annotations = {}
    if draw(st.booleans()):
        annotations["headgate.dev/no-endpoints"] = "fail"
    if draw(st.booleans()):
        annotations["headgate.dev/allow-self-reference"] = "true"
    if draw(st.booleans()):
        annotations["headgate.dev/sticky"] = draw(st.sampled_from(("cookie:side", "header:x-user", "source")))
    spec = {
        "service": draw(ROOTS),
        "backends": [{"service": item, "weight": draw(QUANTITIES if old else WEIGHTS)} for item in backends],
    }
    if not old and draw(SELDOM):
        spec["matches"] = [{"kind": "HTTPRouteGroup", "name": "g"}]
    metadata = {"annotations": annotations, "creationTimestamp": draw(TIMES)}
    obj = named("TrafficSplit", draw(NAMESPACES), draw(NAMES), spec=spec, metadata=metadata)
    return obj | {"apiVersion": "split.smi-spec.io/v1alpha1"} if old else obj


@st.composite
def grants(draw):
    source = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": draw(NAMESPACES)}
    target = {"group": "", "kind": "Service"} | draw(st.sampled_from(({}, {"name": "a"})))
    return named("ReferenceGrant", draw(NAMESPACES), "g", spec={"from": [source], "to": [target]})


@st.composite
def pods(draw):
    """Draw a pod with an address from the slices, sometimes with the address of another pod, or none."""
    number = draw(st.integers(1, 9))
    annotations = draw(
        st.sampled_from(
            (
                {},
                {"headgate.dev/sidecar": "transparent"},
                {"headgate.dev/sidecar": "transparent"},
                {"headgate.dev/sidecar": "transparent"},
                {"headgate.dev/sidecar": "transparent", "headgate.dev/excluded-inbound-ports": "80,9"},
                {"headgate.dev/sidecar": "explicit", "headgate.dev/application-ports": "8080=20417,80=8080"},
                {"headgate.dev/sidecar": "explicit"},
            )
        )
    )
    port = {"containerPort": draw(PORTS), "name": draw(st.sampled_from(("http-x", "tcp-x", "x")))}
    probe = {"readinessProbe": {"httpGet": {"port": draw(st.sampled_from((8080, "http-x", "gone")))}}}
    containers = [{"name": "app", "ports": draw(st.sampled_from(([], [port])))} | draw(st.sampled_from(({}, probe)))]
    address = draw(st.sampled_from((f"10.1.0.{number}", f"10.1.0.{number}", "10.1.0.1", "")))
    return named(
        "Pod",
        draw(NAMESPACES),
        f"pod-{number}",
        metadata={"labels": draw(LABELS), "annotations": annotations, "creationTimestamp": draw(TIMES)},
        spec={"serviceAccountName": draw(ACCOUNTS), "containers": containers},
        status={"podIP": address, "phase": draw(st.sampled_from(("Running", "Running", "Pending", "Failed")))},
    )


@st.composite
def tls_configs(draw):
    names = draw(st.lists(st.sampled_from(("foo", "bar", "*.example.com", "No Name")), max_size=2, unique=True))
    spec = {"selector": {"matchLabels": draw(LABELS)}, "subjectNames": names}
    return named("TLSConfig", draw(NAMESPACES), draw(NAMES), spec=spec)


@st.composite
def targets(draw):
    rules = draw(st.lists(RULES, max_size=2))
    destination = {"kind": "ServiceAccount", "name": draw(ACCOUNTS)} | draw(st.sampled_from(({}, {}, {"port": 8080})))
    sources = [{"kind": "ServiceAccount", "name": name} for name in draw(st.sampled_from((["a"], ["a", "b"], [])))]
    spec = {"destination": destination, "sources": sources, "rules": rules}
    return named("TrafficTarget", draw(NAMESPACES), draw(NAMES), spec=spec)


@st.composite
def rule_routes(draw):
    if draw(st.booleans()):
        return named("TCPRoute", draw(NAMESPACES), "t", spec={"matches": {"ports": draw(st.lists(PORTS, max_size=2))}})
    return named("HTTPRouteGroup", draw(NAMESPACES), "g", spec={"matches": [{"name": "m", "pathRegex": "/x"}]})


@st.composite
def meshes(draw):
    """Draw worlds with pods that have sidecars, and with policies."""
    found = [_spoken(obj, draw(PROTOCOLS)) for obj in draw(worlds()).values()]
    for kind in (pods(), pods(), tls_configs(), targets(), rule_routes()):
        found += draw(st.lists(kind, min_size=1, max_size=3))
    return {key_of(obj): obj for obj in draw(st.permutations(found))}


def _spoken(obj, protocol):
    if obj["kind"] != "Service" or not protocol:
        return obj
    return obj | {"spec": obj["spec"] | {"ports": [port | {"appProtocol": protocol} for port in obj["spec"]["ports"]]}}


@st.composite
def worlds(draw):
    """Draw objects by key, in random order."""
    found = [draw(services(*place)) for place in PLACES if draw(MOSTLY)]
    found += [draw(slices(*place)) for place in PLACES for _ in range(2) if draw(MOSTLY)]
    found += draw(st.lists(splits(), min_size=1, max_size=4)) + draw(st.lists(grants(), max_size=2))
    return {key_of(obj): obj for obj in draw(st.permutations(found))}


def key_of(obj):
    kind = find_written(obj["apiVersion"], obj["kind"])
    return kind.key(obj["metadata"]["namespace"], obj["metadata"]["name"])
