"""Random routes and Gateways; names repeat often, and invalid values occur."""

from hypothesis import strategies as st
from tests.properties.worlds import MOSTLY, NAMESPACES, SELDOM, TIMES, key_of, named, worlds

GROUP = "gateway.networking.k8s.io"
HOSTS = st.lists(st.sampled_from(("*.example", "a.example", "b.example", "other.org")), max_size=3, unique=True)
LISTENER_HOSTS = ("", "*.example", "a.example")
SERVICES = st.sampled_from(("a", "b", "c", "a", "b", "c", "svc", "gone"))
PORTS = st.sampled_from((8080, 8080, 80))
PATHS = st.sampled_from(("/", "/a", "/a/", "/a/b", "/b"))
PERCENTS = st.sampled_from(
    ({}, {"percent": 0}, {"percent": 42}, {"fraction": {"numerator": 1, "denominator": 3}}, {"fraction": {}})
)


@st.composite
def references(draw):
    found = {"name": draw(SERVICES), "port": draw(PORTS)}
    if draw(SELDOM):
        found["namespace"] = draw(NAMESPACES)
    return found | ({"kind": "Bucket", "group": "example.com"} if draw(SELDOM) else {})


@st.composite
def matches(draw):
    found = {"path": {"type": draw(st.sampled_from(("Exact", "PathPrefix"))), "value": draw(PATHS)}}
    if draw(SELDOM):
        found = {"path": {"type": "RegularExpression", "value": "/[a-z]+"}}
    if draw(st.booleans()):
        found["method"] = draw(st.sampled_from(("GET", "POST")))
    if draw(st.booleans()):
        found["headers"] = [{"name": name, "value": "1"} for name in draw(st.sampled_from((["a"], ["B", "a"])))]
    return found


@st.composite
def rules(draw):
    mirrors = [
        {"type": "RequestMirror", "requestMirror": {"backendRef": draw(references()), **draw(PERCENTS)}}
        for _ in range(draw(st.integers(0, 2)))
    ]
    if draw(SELDOM):
        mirrors.append({"type": "ExtensionRef", "extensionRef": {"group": "example.com", "kind": "X", "name": "x"}})
    backends = [
        draw(references()) | draw(st.sampled_from(({}, {"weight": 0}, {"weight": 3}, {"weight": 1_000_000})))
        for _ in range(draw(st.integers(0, 3)))
    ]
    return {
        "matches": [draw(matches()) for _ in range(draw(st.integers(0, 2)))],
        "filters": mirrors,
        "backendRefs": backends,
    }


@st.composite
def parents(draw):
    if draw(st.booleans()):
        return {"group": "", "kind": "Service", "name": draw(SERVICES)} | draw(st.sampled_from(({}, {"port": 8080})))
    found = {"name": draw(st.sampled_from(("edge", "edge", "late", "gone")))}
    if draw(SELDOM):
        found["namespace"] = draw(NAMESPACES)
    return found | draw(st.sampled_from(({}, {}, {"sectionName": "l0"}, {"port": 8080})))


@st.composite
def routes(draw, name):
    spec = {
        "parentRefs": [draw(parents())],
        "hostnames": draw(HOSTS),
        "rules": [draw(rules()) for _ in range(draw(st.integers(1, 3)))],
    }
    return named("HTTPRoute", draw(NAMESPACES), name, spec=spec, metadata={"creationTimestamp": draw(TIMES)})


@st.composite
def gateways(draw, name):
    hosts = draw(st.lists(st.sampled_from(LISTENER_HOSTS), min_size=1, max_size=3, unique=True))
    listeners = [
        {"name": f"l{index}", "port": draw(st.sampled_from((8080, 8080, 9090))), "protocol": "HTTP"}
        | ({"hostname": host} if host else {})
        | ({"allowedRoutes": {"namespaces": {"from": "All"}}} if draw(st.booleans()) else {})
        for index, host in enumerate(hosts)
    ]
    if draw(SELDOM):
        listeners.append({"name": "raw", "port": 9090, "protocol": "TCP"})
    address = draw(st.sampled_from(("10.2.0.1", "10.2.0.1", "10.2.0.2", "10.0.0.1", "")))
    return named(
        "Gateway",
        "default",
        name,
        spec={"gatewayClassName": "headgate", "listeners": listeners},
        status={"addresses": [{"value": address}] if address else []},
        metadata={"creationTimestamp": draw(TIMES)},
    )


@st.composite
def gateway_worlds(draw):
    """Draw objects by key, in random order: Services, splits, grants, Gateways and routes."""
    found = list(draw(worlds()).values())
    found += [draw(gateways(name)) for name in ("edge", "late") if draw(MOSTLY)]
    found += [draw(routes(f"r{index}")) for index in range(draw(st.integers(1, 4)))]
    return {key_of(obj): obj for obj in draw(st.permutations(found))}
