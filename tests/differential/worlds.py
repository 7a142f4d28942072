"""Random objects and requests for a real proxy, with few names, so that objects and requests often match."""

from typing import NamedTuple

from hypothesis import strategies as st
from tests.differential import odd_headers, routes
from tests.differential.lab import MEMBERS
from tests.properties.worlds import key_of, named

PLACES = (("default", "a"), ("default", "b"), ("default", "c"), ("default", "d"), ("blue", "a"), ("blue", "b"))
NAMES = ("a", "b", "c", "d")
ROOT_PLACES = (("default", "a"),) * 6 + (("default", "b"),) * 2
PORTS = (8080, 8080, 8080, 1080, 9090)
TIMES = st.sampled_from(("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"))
WEIGHTS = st.sampled_from((0, 1, 1, 2, 3, 5, 10, 90, 2**30))
ROOTS = st.sampled_from(("a", "a", "a", "a", "b", "c", "a.default", "b.default.svc.cluster.local", "a.blue"))
BACKENDS = st.sampled_from(("a", "b", "c", "d", "b", "c", "d", "a.blue", "b.blue", "gone"))
GROUPS = ("g1", "g2", "g3")
SELDOM = st.integers(0, 11).map(lambda drawn: drawn == 7)
LEFT_OUT = st.integers(0, 11).map(
    lambda drawn: drawn == 0
)  # Hypothesis shrinks to 0, so the smallest world has the fewest objects

PATH_PATTERN = st.sampled_from(
    ("/", "/a", "^/a", "/a$", "/a/.*", "/api", "/(a|b)", "/b/?", ".*", "/a\\d+", "(?i)/A", "/a.b", "", "a", "[")
)
PATHS = (
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/ab",
    "/api?x=/b",
    "/b",
    "/b/",
    "/a1",
    "/a12x",
    "/A",
    "/aXb",
    "/x/a",
    "/a%2Fb",
    "/a?q=1",
    "/b?r=a&q=yes&q=1",
    "/a?b",
    "//a",
)
METHODS = ("GET", "POST", "HEAD", "PUT", "*")
SENT_METHODS = ("GET", "GET", "GET", "POST", "HEAD", "PUT", "DELETE")
HEADERS = ("x-a", "X-A", "x-b", "User-Agent", "cookie", "host")
HEADER_PATTERN = st.sampled_from(
    (".*", ".+", "", "1", "^1$", "[0-9]+", "a|b", "(?i)yes", ".*Firefox.*", "1,2", "^.*sticky=on.*$", "a.*", "(")
)
VALUES = ("", "1", "12", "a", "b", "ab", "yes", "YES", "Firefox", "x Firefox y", "firefox", "a=1; sticky=on", "2")
USERS = (("x-user", "alice"), ("x-user", "bob"), ("x-user", ""), ("cookie", "side=1"), ("cookie", 'a=1; side="2"'))
MOSTLY = st.integers(0, 3).map(lambda drawn: drawn < 3)
HOSTS = ("a", "b.example.com", "1", "yes", "a:8080")


def services(draw, place, index, protocols):
    """Return a Service and its EndpointSlices; Services may share endpoints, as a split's root and backends do."""
    namespace, name = place
    numbers = draw(st.lists(st.sampled_from(PORTS), min_size=1, max_size=3, unique=True))
    ports = [{"name": f"p{port}", "port": port} | _spoken(draw, protocols) for port in numbers]
    ready = st.sampled_from(({}, {}, {}, {"ready": True}, {"ready": False}))
    metadata = {"creationTimestamp": draw(TIMES)}
    spec = {"clusterIP": f"address-{index + 1}", "ports": ports}
    return [
        named("Service", namespace, name, metadata=metadata, spec=spec),
        *(
            named(
                "EndpointSlice",
                namespace,
                f"{name}-{member}",
                metadata={"labels": {"kubernetes.io/service-name": name}},
                addressType="IPv4",
                endpoints=[{"addresses": ["127.0.0.1"], "conditions": draw(ready)}],
                ports=[{"name": port["name"], "port": f"member-{member}"} for port in ports],
            )
            for member in _members(draw, index)
        ),
    ]


def _members(draw, index):
    """Return the backends of a Service: mostly a few that other Services share, sometimes any or none."""
    if draw(SELDOM):
        return draw(st.lists(st.integers(0, MEMBERS - 1), max_size=4, unique=True))
    near = [(index + step) % MEMBERS for step in range(0, MEMBERS, 3)]
    return draw(st.lists(st.sampled_from(near), min_size=1, max_size=3, unique=True))


def _spoken(draw, protocols):
    return {"appProtocol": draw(st.sampled_from(protocols))} if protocols and draw(SELDOM) else {}


def splits(draw, name):
    """Return a TrafficSplit; two in three have matches."""
    backends = draw(st.lists(BACKENDS, min_size=1, max_size=4, unique=True))
    annotations = {}
    if draw(SELDOM):
        annotations["headgate.dev/no-endpoints"] = "fail"
    if draw(SELDOM):
        annotations["headgate.dev/allow-self-reference"] = "true"
    if draw(SELDOM):
        annotations["headgate.dev/sticky"] = draw(st.sampled_from(("cookie:side", "header:x-user", "source")))
    spec = {
        "service": draw(ROOTS),
        "backends": [{"service": item, "weight": draw(WEIGHTS)} for item in backends],
    }
    if groups := draw(st.lists(st.sampled_from((*GROUPS, *GROUPS, "gone")), max_size=2, unique=True)):
        spec["matches"] = [{"kind": "HTTPRouteGroup", "name": group} for group in groups]
    namespace = "blue" if draw(SELDOM) else "default"
    metadata = {"annotations": annotations, "creationTimestamp": draw(TIMES)}
    return named("TrafficSplit", namespace, name, spec=spec, metadata=metadata)


def groups(draw, name):
    """Return an HTTPRouteGroup in one of its versions (D4)."""
    matches = [_match(draw, f"m{index}") for index in range(draw(st.integers(1, 3)))]
    obj = named("HTTPRouteGroup", "default", name, spec={"matches": matches})
    if draw(SELDOM):
        del obj["spec"]
        obj |= {"apiVersion": "specs.smi-spec.io/v1alpha2", "matches": matches}
    return obj


def _match(draw, name):
    found = {"name": name}
    if draw(st.booleans()):
        found["pathRegex"] = draw(PATH_PATTERN)
    if draw(SELDOM | st.booleans()):
        found["methods"] = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=2, unique=True))
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(HEADERS), min_size=1, max_size=2, unique_by=str.lower))
        headers = {item: draw(HEADER_PATTERN) for item in names}
        if draw(SELDOM):
            odd = draw(odd_headers.NAMES)
            headers[odd] = draw(st.sampled_from(odd_headers.CONDITIONS[odd]))
        found["headers"] = [{item: value} for item, value in headers.items()] if draw(SELDOM) else headers
    return found


def grants(draw, name):
    """Return a ReferenceGrant for splits of one namespace to Services of the other."""
    here, there = draw(st.permutations(("default", "blue")))
    source = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": here}
    target = {"group": "", "kind": "Service"} | draw(st.sampled_from(({}, {}, {"name": "a"})))
    return named("ReferenceGrant", there, name, spec={"from": [source], "to": [target]})


@st.composite
def worlds(draw, protocols=()):
    """Return objects by key, as a user could have written them."""
    found = []
    for index, place in enumerate(PLACES):
        if not draw(LEFT_OUT):
            found += services(draw, place, index, protocols)
    found += [splits(draw, f"s{index}") for index in range(draw(st.integers(1, 3)))]
    found += [groups(draw, name) for name in GROUPS if not draw(LEFT_OUT)]
    if draw(st.booleans()):
        found += [*routes.gateway("address-100"), *(routes.http_route(draw, f"r{n}", draw(TIMES)) for n in range(3))]
        found += [routes.grpc_route(draw, f"g{n}", draw(TIMES)) for n in range(draw(st.sampled_from((0, 0, 1, 2))))]
        found += [routes.tcp_route(draw, f"t{n}", draw(TIMES)) for n in range(draw(st.integers(0, 2)))]
    found += [grants(draw, f"grant{index}") for index in range(draw(st.sampled_from((0, 0, 1, 2))))]
    return {key_of(obj): obj for obj in found}


@st.composite
def root_worlds(draw):
    """Return objects by key; routes and mirrors name the root of splits with and without matches (D13)."""
    found = [obj for index, place in enumerate(PLACES) for obj in services(draw, place, index, ())]
    for name, matches in (("s0", GROUPS[:1]), ("s1", GROUPS[1:]), ("s2", ())):
        obj = splits(draw, name)
        obj["metadata"]["namespace"], obj["spec"]["service"] = "default", "a"
        obj["spec"].pop("matches", None)
        if matches:
            obj["spec"]["matches"] = [{"kind": "HTTPRouteGroup", "name": group} for group in matches]
        found.append(obj)
    found += [groups(draw, name) for name in GROUPS]
    found += [*routes.gateway("address-100"), *(routes.route_to_root(draw, f"r{n}", draw(TIMES)) for n in range(2))]
    return {key_of(obj): obj for obj in found}


class Sent(NamedTuple):
    """A request for a Service.

    `via` is `address`, `proxy` (the authority selects the Service) or `gateway`. `server_name` is the TLS SNI,
    empty for plaintext.
    """

    service: str
    port: int
    via: str
    authority: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    server_name: str = ""


@st.composite
def requests(draw):
    """Return a request with names from the random objects; near misses are as likely as matches."""
    namespace, name = draw(st.sampled_from((*PLACES, *ROOT_PLACES)))
    port, via = draw(st.sampled_from(PORTS)), draw(st.sampled_from(("address", "proxy", "gateway")))
    plain = f"{name}.{namespace}:{port}"
    authorities = {
        "address": (plain, *HOSTS),
        "proxy": (
            plain,
            f"{name}.{namespace}",
            f"{name}.{namespace}.svc.cluster.local:{port}",
            f"{name}:{port}",
            f"{name}.{namespace}.svc.cluster.local.:{port}",
            f"{name.upper()}.{namespace}.SVC",
        ),
        "gateway": routes.GATEWAY_HOSTS,
    }
    headers = draw(st.lists(st.tuples(st.sampled_from(HEADERS[:-1]), st.sampled_from(VALUES)), max_size=3))
    if not draw(MOSTLY):
        headers += draw(st.lists(st.sampled_from(USERS), max_size=2))
    if not draw(MOSTLY):
        headers += draw(odd_headers.lists(http1=True))
    authority = draw(st.sampled_from(authorities[via]))
    port = draw(st.sampled_from(routes.SENT_TO)) if via == "gateway" else port
    server_name = authority.partition(":")[0] if draw(MOSTLY) else draw(st.sampled_from(routes.SERVER_NAMES))
    return Sent(
        service=f"{namespace}/{name}",
        port=port,
        via=via,
        authority=authority,
        method=draw(st.sampled_from(SENT_METHODS)),
        target=draw(st.sampled_from(PATHS if via != "gateway" or draw(MOSTLY) else routes.GRPC_PATHS)),
        headers=tuple(headers),
        server_name=server_name if via == "gateway" and port in routes.SECURE else "",
    )
