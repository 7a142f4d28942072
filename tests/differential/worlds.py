"""Random objects and requests for a real proxy, with few names, so that objects and requests often match."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st
from tests.differential import edge, filters, odd_headers, routes
from tests.differential.lab import MEMBERS, Objects
from tests.make.objects import GATEWAY_API, Object, canary, endpoint, endpoint_slice, grant, obj, port, service, split

from headgate.kinds import EXPERIMENTAL
from headgate.resources.registry import key_of

PLACES = (("default", "a"), ("default", "b"), ("default", "c"), ("default", "d"), ("blue", "a"), ("blue", "b"))
NAMES = ("a", "b", "c", "d")
ROOT_PLACES = (("default", "a"),) * 6 + (("default", "b"),) * 2
PORTS = (8080, 8080, 8080, 1080, 9090)
TIMES = st.sampled_from(("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"))
WEIGHTS = st.sampled_from((0, 1, 1, 2, 3, 5, 10, 90, 2**30))
ROOTS = st.sampled_from(("a", "a", "a", "a", "b", "c", "a.default", "b.default.svc.cluster.local", "a.blue"))
BACKENDS = st.sampled_from(("a", "b", "c", "d", "b", "c", "d", "a.blue", "b.blue", "gone"))
GROUPS = ("g1", "g2", "g3")
JUDGED = "judged"
"""A Canary whose analysis compares the backends of its splits: they have a random order."""
SELDOM = st.integers(0, 11).map(lambda drawn: drawn == 7)
LEFT_OUT = st.integers(0, 11).map(
    lambda drawn: drawn == 0
)  # Hypothesis shrinks to 0, so the smallest world has the fewest objects

PATH_PATTERN = st.sampled_from(
    (
        "/",
        "/a",
        "^/a",
        "/a$",
        "/a/.*",
        "/api",
        "/(a|b)",
        "/b/?",
        ".*",
        "/a\\d+",
        "(?i)/A",
        "/a.b",
        "/a[^/]",
        "/[^\\x00-\\x7f]+",
        "",
        "a",
        "[",
    )
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
    "/aé",
    "/a\udcff",
    "/\udce9",
)
METHODS = ("GET", "POST", "HEAD", "PUT", "*")
SENT_METHODS = ("GET", "GET", "GET", "POST", "HEAD", "PUT", "DELETE")
HEADERS = ("x-a", "X-A", "x-b", "User-Agent", "cookie", "host")
HEADER_PATTERN = st.sampled_from(
    (
        ".*",
        ".+",
        "",
        "1",
        "^1$",
        "[0-9]+",
        "a|b",
        "(?i)yes",
        ".*Firefox.*",
        "1,2",
        "^.*sticky=on.*$",
        "a.*",
        ".",
        "..",
        "[^a]+",
        "[^\\x00-\\x7f]+",
        "(?s)a.b",
        "(",
    )
)
VALUES = (
    "",
    "1",
    "12",
    "a",
    "b",
    "ab",
    "yes",
    "YES",
    "Firefox",
    "x Firefox y",
    "firefox",
    "a=1; sticky=on",
    "2",
)
NOT_ASCII = ("é", "\udce9", "\udcff", "a\tb", "\x7f")
USERS = (("x-user", "alice"), ("x-user", "bob"), ("x-user", ""), ("cookie", "side=1"), ("cookie", 'a=1; side="2"'))
RESILIENCE: st.SearchStrategy[Object] = st.sampled_from(
    (
        {"headgate.dev/retry": "retries=2 on=503,reset"},
        {"headgate.dev/timeout": "request=60s attempt=30s"},
        {"headgate.dev/retry": "retries=1 on=5xx budget=50%", "headgate.dev/limits": "connections=1000"},
        {"headgate.dev/outlier-detection": "off"},
        {
            "headgate.dev/outlier-detection": "gateway-errors=9 local-errors=9 errors=9 time=1s max-time=9s max-percent=9%",
            "headgate.dev/retry": "retries=3 on=unavailable backoff=10ms max-backoff=20ms",
            "headgate.dev/timeout": "connect=1s idle=9s",
            "headgate.dev/limits": "pending=1000 requests=1000 retries=100",
        },
    )
)
"""Settings that change no result while every member answers in time."""
ROUTES = ("HTTPRoute", "HTTPRoute", "HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute")
MOSTLY = st.integers(0, 3).map(lambda drawn: drawn < 3)
HOSTS = ("a", "b.example.com", "1", "yes", "a:8080")


def services(draw: st.DrawFn, place: tuple[str, str], index: int, protocols: Sequence[str]) -> list[Object]:
    """Return a Service and its EndpointSlices; Services may share endpoints, as a split's root and backends do."""
    namespace, name = place
    numbers = draw(st.lists(st.sampled_from(PORTS), min_size=1, max_size=3, unique=True))
    ports = [port(number, f"p{number}", app=_app_protocol(draw, protocols)) for number in numbers]
    metadata = {"creationTimestamp": draw(TIMES)} | ({"annotations": draw(RESILIENCE)} if draw(routes.MARKS) else {})
    if draw(st.sampled_from((False, False, True))):
        ports.append(port(edge.DATAGRAMS, "datagrams") | {"protocol": "UDP"})
    if draw(MOSTLY):
        ports.append(port(edge.NAMED, "named", app="tls"))
    written = service(name, *ports, namespace=namespace, metadata=metadata, clusterIP=f"address-{index + 1}")
    conditions: st.SearchStrategy[Object] = st.sampled_from(
        ({}, {}, {}, {"ready": True}, {"ready": False}, {"ready": False, "serving": True, "terminating": True})
    )
    return [written, *(_slice(written, member, draw(conditions)) for member in _members(draw, index))]


def _slice(written: Object, member: int, conditions: Object) -> Object:
    """Return the EndpointSlice of a Service with one endpoint, which is a member."""
    name, namespace = written["metadata"]["name"], written["metadata"]["namespace"]
    ports = {number["name"]: f"member-{member}" for number in written["spec"]["ports"]}
    place = endpoint("127.0.0.1", conditions=conditions)
    written_slice = endpoint_slice(name, [place], ports, name=f"{name}-{member}", namespace=namespace)
    of_datagrams = [
        {**each, "protocol": "UDP"} if each["name"] == "datagrams" else each for each in written_slice["ports"]
    ]
    return written_slice | {"ports": of_datagrams}


def _members(draw: st.DrawFn, index: int) -> list[int]:
    """Return the backends of a Service: mostly a few that other Services share, sometimes any or none."""
    if draw(SELDOM):
        return draw(st.lists(st.integers(0, MEMBERS - 1), max_size=4, unique=True))
    near = [(index + step) % MEMBERS for step in range(0, MEMBERS, 3)]
    return draw(st.lists(st.sampled_from(near), min_size=1, max_size=3, unique=True))


def _app_protocol(draw: st.DrawFn, protocols: Sequence[str]) -> str:
    if not protocols or not draw(SELDOM):
        return ""
    return draw(st.sampled_from(protocols))


def splits(draw: st.DrawFn, name: str) -> Object:
    """Return a TrafficSplit; two in three have matches."""
    backends = draw(st.lists(BACKENDS, min_size=1, max_size=4, unique=True))
    annotations = {}
    if draw(SELDOM):
        annotations["headgate.dev/no-endpoints"] = "fail"
    if draw(SELDOM):
        annotations["headgate.dev/allow-self-reference"] = "true"
    if draw(routes.OFTEN):
        annotations["headgate.dev/sticky"] = draw(st.sampled_from(("cookie:side", "header:x-user", "source")))
    if draw(routes.OFTEN):
        annotations["headgate.dev/mirror"] = (
            f"{draw(st.sampled_from(backends))}={draw(st.sampled_from(('100%', '50%', '0.5%')))}"
        )
    owner = {"apiVersion": "split.smi-spec.io/v1alpha4", "kind": "Canary", "name": JUDGED, "uid": "1"}
    metadata: Object = {"annotations": annotations, "creationTimestamp": draw(TIMES)}
    if draw(st.booleans()):
        metadata["ownerReferences"] = [owner]
    return split(
        draw(ROOTS),
        {backend: draw(WEIGHTS) for backend in backends},
        name=name,
        matches=draw(st.lists(st.sampled_from((*GROUPS, *GROUPS, "gone")), max_size=2, unique=True)),
        namespace="blue" if draw(SELDOM) else "default",
        metadata=metadata,
    )


def judged() -> Object:
    """Return the Canary JUDGED."""
    return canary("d", {"b": 1, "c": 1}, name=JUDGED, analysis={"canary": "b", "success": {"margin": "50%"}})


def groups(draw: st.DrawFn, name: str) -> Object:
    """Return an HTTPRouteGroup in one of its versions (D4)."""
    matches = [_match(draw, f"m{index}") for index in range(draw(st.integers(1, 3)))]
    if draw(SELDOM):
        return obj("HTTPRouteGroup", name, version="specs.smi-spec.io/v1alpha2", matches=matches)
    return obj("HTTPRouteGroup", name, spec={"matches": matches})


def _match(draw: st.DrawFn, name: str) -> Object:
    match: dict[str, Any] = {"name": name}
    if draw(st.booleans()):
        match["pathRegex"] = draw(PATH_PATTERN)
    if draw(SELDOM | st.booleans()):
        match["methods"] = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=2, unique=True))
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(HEADERS), min_size=1, max_size=2, unique_by=str.lower))
        headers = {key: draw(HEADER_PATTERN) for key in names}
        if draw(SELDOM):
            odd = draw(odd_headers.NAMES)
            headers[odd] = draw(st.sampled_from(odd_headers.CONDITIONS[odd]))
        match["headers"] = [{key: value} for key, value in headers.items()] if draw(SELDOM) else headers
    return match


def grants(draw: st.DrawFn, name: str) -> Object:
    """Return a ReferenceGrant for splits or routes of one namespace to Services of the other."""
    here, there = draw(st.permutations(("default", "blue")))
    group, kind = draw(
        st.sampled_from((("split.smi-spec.io", "TrafficSplit"), *((GATEWAY_API, kind) for kind in ROUTES)))
    )
    source = (group, kind, here)
    return grant(name, source, ("", "Service"), only=draw(st.sampled_from(("", "", "a"))), namespace=there)


def consumers(draw: st.DrawFn) -> list[Object]:
    """Return routes of the namespace `blue` for Services of the namespace `default`, and mostly a grant for their backends."""
    number: int = draw(st.sampled_from((0, 0, 1, 2)))
    drawn = [routes.consumer_route(draw, f"c{n}", draw(TIMES)) for n in range(number)]
    if number and draw(MOSTLY):
        for kind in {written["kind"]: None for written in drawn}:
            source = (GATEWAY_API, kind, "blue")
            drawn.append(grant(f"consumers-{kind.lower()}", source, ("", "Service")))
            drawn.append(grant(f"externals-{kind.lower()}", source, (EXPERIMENTAL, "XBackend")))
    return drawn


@st.composite
def worlds(draw: st.DrawFn, protocols: Sequence[str] = ()) -> Objects:
    """Return objects by key, as a user could have written them."""
    objects: list[Object] = []
    for index, place in enumerate(PLACES):
        if not draw(LEFT_OUT):
            objects += services(draw, place, index, protocols)
    objects += [splits(draw, f"s{index}") for index in range(draw(st.integers(1, 3)))]
    objects += [groups(draw, name) for name in GROUPS if not draw(LEFT_OUT)]
    objects.append(judged())
    if draw(st.booleans()):
        objects += [
            *edge.random_edge(draw, "address-100"),
            *(routes.http_route(draw, f"r{n}", draw(TIMES)) for n in range(3)),
        ]
        objects += [routes.grpc_route(draw, f"g{n}", draw(TIMES)) for n in range(draw(st.integers(0, 2)))]
        objects += [routes.tcp_route(draw, f"t{n}", draw(TIMES)) for n in range(draw(st.integers(0, 2)))]
        objects += [routes.policy(draw, f"p{n}", draw(TIMES)) for n in range(draw(st.sampled_from((0, 0, 1, 2))))]
        objects += [routes.tls_route(draw, f"tls{n}", draw(TIMES)) for n in range(draw(st.integers(0, 2)))]
        objects += [
            routes.drawn_traffic_policy(draw, f"b{n}", draw(TIMES)) for n in range(draw(st.sampled_from((0, 0, 1, 2))))
        ]
        objects += [routes.udp_route(draw, f"u{n}", draw(TIMES)) for n in range(draw(st.integers(0, 2)))]
        objects += consumers(draw)
        objects += [] if draw(LEFT_OUT) else [edge.listener_set(draw(TIMES))]
    objects += [grants(draw, f"grant{index}") for index in range(draw(st.sampled_from((0, 0, 1, 2))))]
    return {key_of(written): written for written in objects}


@st.composite
def root_worlds(draw: st.DrawFn) -> Objects:
    """Return objects by key; routes and mirrors name the root of splits with and without matches (D13)."""
    objects = [written for index, place in enumerate(PLACES) for written in services(draw, place, index, ())]
    for name, matches in (("s0", GROUPS[:1]), ("s1", GROUPS[1:]), ("s2", ())):
        drawn = splits(draw, name)
        weights = {backend["service"]: backend["weight"] for backend in drawn["spec"]["backends"]}
        objects.append(
            split("a", weights, name=name, matches=matches, metadata=drawn["metadata"] | {"namespace": "default"})
        )
    objects += [judged(), *(groups(draw, name) for name in GROUPS)]
    objects += [
        *edge.random_edge(draw, "address-100"),
        *(routes.route_to_root(draw, f"r{n}", draw(TIMES)) for n in range(2)),
    ]
    return {key_of(written): written for written in objects}


@st.composite
def edge_worlds(draw: st.DrawFn) -> Objects:
    """Return objects by key: routes of each kind at the Gateway and its ListenerSet, and few splits."""
    objects = [written for index, place in enumerate(PLACES) for written in services(draw, place, index, ())]
    objects += [
        splits(draw, "s0"),
        judged(),
        *(groups(draw, name) for name in GROUPS),
        *edge.random_edge(draw, "address-100"),
        edge.listener_set(draw(TIMES)),
        routes.http_route(draw, "r0", draw(TIMES)),
        routes.route_of_rare_rules(draw, "r1", draw(TIMES)),
        *(routes.tls_route(draw, f"tls{n}", draw(TIMES)) for n in range(draw(st.integers(1, 2)))),
        routes.grpc_route(draw, "g0", draw(TIMES)),
        routes.udp_route(draw, "u0", draw(TIMES)),
        routes.tcp_route(draw, "t0", draw(TIMES)),
        *(routes.policy(draw, f"p{n}", draw(TIMES)) for n in range(draw(st.integers(1, 2)))),
        routes.drawn_traffic_policy(draw, "b0", draw(TIMES), ("c", "d")),
        *consumers(draw),
    ]
    return {key_of(written): written for written in objects}


class Sent(NamedTuple):
    """A request for a Service.

    `via` is `address`, `proxy` (the authority selects the Service), `tunnel` (through the HTTP proxy: `tunnel` is the
    target of the CONNECT) or `gateway`. `server_name` is the TLS SNI, of the connection inside a tunnel, and empty for plaintext, and `client` one of `edge.CLIENTS`. A `chunked` request has an empty
    body with `trailers`.
    """

    service: str
    port: int
    via: str
    authority: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    server_name: str = ""
    client: str = ""
    version: Literal["1.0", "1.1"] = "1.1"
    tunnel: str = ""
    chunked: bool = False
    trailers: tuple[tuple[str, str], ...] = ()


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    """Return a request with names from the random objects; near misses are as likely as matches."""
    namespace, name = draw(st.sampled_from((*PLACES, *ROOT_PLACES)))
    number, via = draw(st.sampled_from(PORTS)), draw(st.sampled_from(("address", "proxy", "gateway", "gateway")))
    plain = f"{name}.{namespace}:{number}"
    authorities: Mapping[str, Sequence[str]] = {
        "address": (plain, *HOSTS),
        "proxy": (
            plain,
            f"{name}.{namespace}",
            f"{name}.{namespace}.svc.cluster.local:{number}",
            f"{name}:{number}",
            f"{name}.{namespace}.svc.cluster.local.:{number}",
            f"{name.upper()}.{namespace}.SVC",
        ),
        "gateway": edge.HOSTS,
    }
    headers = draw(
        st.lists(st.tuples(st.sampled_from(HEADERS[:-1]), st.sampled_from((*VALUES, *NOT_ASCII))), max_size=3)
    )
    if not draw(MOSTLY):
        headers += draw(st.lists(st.sampled_from(USERS), max_size=2))
    if draw(SELDOM):
        headers.append(draw(filters.SENT_ORIGINS))
    if not draw(MOSTLY):
        headers += draw(odd_headers.lists(http1=True))
    method = draw(st.sampled_from(SENT_METHODS))
    if draw(SELDOM):
        headers += draw(filters.PREFLIGHTS)
        method = "OPTIONS"
    authority = draw(st.sampled_from(authorities[via]))
    number = draw(st.sampled_from(edge.SENT_TO)) if via == "gateway" else number
    secure = via == "gateway" and number in edge.SECURE
    server_name = authority.partition(":")[0] if draw(MOSTLY) else draw(st.sampled_from(edge.SERVER_NAMES))
    server_name = server_name if secure else ""
    if via == "address" and not draw(MOSTLY):
        number, server_name = edge.NAMED, draw(st.sampled_from(edge.OF_NAMED))
    return Sent(
        service=f"{namespace}/{name}",
        port=number,
        via=via,
        authority=authority,
        method=method,
        target=draw(st.sampled_from(PATHS if via != "gateway" or draw(MOSTLY) else routes.GRPC_PATHS)),
        headers=tuple(headers),
        server_name=server_name,
        client=draw(st.sampled_from(edge.CLIENTS)) if secure else "",
    )
