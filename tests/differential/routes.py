"""Random routes of each kind, whose parents are the Gateway, its ListenerSet or Services, or the default Gateways."""

from collections.abc import Sequence

from hypothesis import strategies as st
from tests.differential import edge, filters
from tests.differential.edge import GATEWAY
from tests.differential.filters import EDITS, EXTERNALS, REFERENCES
from tests.make.objects import Object, backend_ref, path_match, route, service_parent, traffic_policy

GRPC_SERVICES = ("pkg.S", "pkg.T")
GRPC_METHODS = ("Get", "Put")
GRPC_PATHS = ("/pkg.S/Get", "/pkg.S/Put", "/pkg.T/Get", "/pkg.S", "/pkg.S/Get/x", "/PKG.S/Get")
HOSTNAMES = ((), (), (), ("a.example.com",), ("*.example.com",), ("*.b.example.com", "other"))
EXACT_PATHS = ("/", "/a", "/a/b", "/b/", "/ab")
PREFIXES = ("/", "/a", "/a/", "/a/b", "/b", "/x")
REGEXES = (
    "/a",
    "/(a|b)/?",
    "/.*",
    "/a\\d+",
    ".*b",
    "(?i)/A",
    "/a[^/]",
    "/a[\\x00-\\x7f]*",
    "/[^\\x00-\\x7f]+",
    "(?s)/a.+",
    "/a\\b.*",
)
TEXTS = ("1", "a", "yes", "12", "ab")
PATTERNS = ("1|a", ".*", "[0-9]+", "a.?", "(?i)YES", "[^a]+", "[^\\x00-\\x7f]+", "(?s)a.b", "\\x7f?")
SERVICE = service_parent("a")
OF_SET = {"kind": "ListenerSet", "name": edge.SET}
OFTEN = st.integers(0, 2).map(lambda drawn: drawn == 1)
MARKS = st.integers(0, 5).map(lambda drawn: drawn == 1)


RESILIENCE: st.SearchStrategy[Object] = st.sampled_from(
    (
        {"timeouts": {"request": "60s", "backendRequest": "30s"}},
        {"retry": {"attempts": 2, "codes": [503]}},
        {"retry": {"attempts": 0}},
        {"retry": {"attempts": 1, "codes": [502, 504], "backoff": "10ms"}, "timeouts": {"request": "60s"}},
    )
)
"""Settings of a rule that change no result while every member answers in time."""


SESSIONS: st.SearchStrategy[Object] = st.sampled_from(
    (
        {"sessionPersistence": {}},
        {"sessionPersistence": {"sessionName": "own"}},
        {
            "sessionPersistence": {
                "sessionName": "own",
                "absoluteTimeout": "1h",
                "cookieConfig": {"lifetimeType": "Permanent"},
            }
        },
        {
            "sessionPersistence": {
                "sessionName": "own",
                "absoluteTimeout": "1h",
                "cookieConfig": {"lifetimeType": "Session"},
            }
        },
        {"sessionPersistence": {"sessionName": "x-own", "type": "Header"}},
    )
)
"""Sessions of a rule."""


BUDGETS: st.SearchStrategy[Object] = st.sampled_from(
    ({}, {"retryConstraint": {}}, {"retryConstraint": {"budget": {"percent": 0}, "minRetryRate": {"count": 1}}})
)
"""Limits of retries, which change no result while every member answers."""


def http_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return an HTTPRoute for the Gateway or one of its listeners, or for a Service or one of its ports."""
    parents, rules = draw(PARENTS), [_rule(draw) for _ in range(draw(st.integers(1, 3)))]
    if draw(MARKS):
        rules[0]["name"] = "first"
    return _attached(
        draw, route(name, *rules, parents=parents, metadata={"creationTimestamp": time}, **_hostnames(draw))
    )


def route_of_rare_rules(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return an HTTPRoute for one listener: a backend that redirects, a server that decides over TLS, and a backend with TLS."""
    redirected = backend_ref("c") | {"filters": [filters.redirecting(draw, []), draw(filters.RESPONSE_EDITS)]}
    elsewhere: Object = draw(st.sampled_from(({}, {"namespace": "blue"}, {"namespace": "blue"})))
    rules: list[Object] = [
        {"matches": [path_match("/a")], "backendRefs": [backend_ref("b") | elsewhere, redirected]},
        {
            "matches": [path_match("/b")],
            "backendRefs": [backend_ref("d")],
            "filters": [filters.authorization_by_http("x-tls")],
        },
        {"backendRefs": [backend_ref("c"), backend_ref("d"), filters.reference_of("x-tls")]},
    ]
    return route(name, *rules, parents=[{"name": GATEWAY, "sectionName": "http"}], metadata={"creationTimestamp": time})


def _attached(draw: st.DrawFn, drawn: Object) -> Object:
    """Return a route that may attach to the default Gateways too, or only to them."""
    spec = drawn["spec"]
    if draw(OFTEN):
        spec = spec | {"useDefaultGateways": "All"} | draw(st.sampled_from(({}, {"parentRefs": []})))
    return drawn | {"spec": spec}


def _hostnames(draw: st.DrawFn) -> Object:
    hostnames = draw(st.sampled_from(HOSTNAMES))
    return {"hostnames": list(hostnames)} if hostnames else {}


def route_to_root(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return an HTTPRoute whose rules name the Service `a` as a backend, a mirror, or both."""
    drawn = http_route(draw, name, time)
    for rule in drawn["spec"]["rules"]:
        if "backendRefs" in rule and not draw(OFTEN):
            rule["backendRefs"] = [backend_ref("a"), *draw(st.sampled_from(([], [backend_ref("d")])))]
        if "filters" not in rule and not draw(OFTEN):
            rule["filters"] = [filters.mirror(draw, backend_ref("a"))]
    return drawn


def grpc_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a GRPCRoute for the Gateway or one of its listeners, its ListenerSet, a Service, or a Service and a Gateway."""
    rules, metadata = [_grpc_rule(draw) for _ in range(draw(st.integers(1, 2)))], {"creationTimestamp": time}
    if draw(OFTEN):
        rules[0]["name"] = "first"
    parents = [{"name": GATEWAY}] if draw(st.booleans()) else draw(PARENTS)
    drawn = route(name, *rules, parents=parents, kind="GRPCRoute", metadata=metadata, **_hostnames(draw))
    return _attached(draw, drawn)


def tcp_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a TCPRoute for all TCP ports of the Gateway, for one, for its ListenerSet, or for a Service."""
    parent = draw(
        st.sampled_from(
            (
                {"name": GATEWAY},
                *({"name": GATEWAY, "sectionName": name} for name in ("tcp", "tcp2")),
                OF_SET,
                SERVICE,
                service_parent("b", 9090),
            )
        )
    )
    rule = {"backendRefs": _backends(draw, least=1)} | ({"name": "only"} if draw(OFTEN) else {})
    return _attached(draw, route(name, rule, parents=[parent], kind="TCPRoute", metadata={"creationTimestamp": time}))


def tls_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a TLSRoute for TLS listeners of the Gateway, for the TLS ports of a Service, or for both."""
    backends = [
        backend | {"port": edge.NAMED} if backend["name"] not in EXTERNALS and draw(OFTEN) else backend
        for backend in _backends(draw, least=1)
    ]
    drawn = edge.tls_route(draw, name, time, backends)
    service = service_parent(draw(st.sampled_from("aab")), draw(st.sampled_from((0, edge.NAMED))))
    parents = drawn["spec"]["parentRefs"]
    of_service, of_both = [service], [service, *parents]
    drawn["spec"]["parentRefs"] = draw(st.sampled_from((parents, of_service, of_service, of_both, [OF_SET])))
    return _attached(draw, drawn)


def udp_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a UDPRoute for the UDP listener of the Gateway, or for a Service; few of its backends are no UDP ports."""
    backends = [backend if draw(MARKS) else backend | {"port": edge.DATAGRAMS} for backend in _backends(draw, least=1)]
    drawn = edge.udp_route(name, time, backends)
    if draw(MARKS):
        drawn["spec"]["parentRefs"] = draw(st.sampled_from(([SERVICE], [OF_SET])))
    return _attached(draw, drawn)


def consumer_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a route of the namespace `blue` for a Service of the namespace `default`; half of them are HTTPRoutes."""
    drawn = draw(st.sampled_from((http_route, http_route, grpc_route, tcp_route, tls_route, tls_route)))(
        draw, name, time
    )
    numbers = (0, edge.NAMED) if drawn["kind"] == "TLSRoute" else (0, 8080)
    service = service_parent(draw(st.sampled_from("aab")), draw(st.sampled_from(numbers)), namespace="default")
    for rule in drawn["spec"]["rules"]:
        for backend in rule.get("backendRefs", ()):
            backend["namespace"] = "default"
    spec = {key: value for key, value in drawn["spec"].items() if key != "useDefaultGateways"}
    return drawn | {
        "metadata": drawn["metadata"] | {"namespace": "blue"},
        "spec": spec | {"parentRefs": [service]},
    }


def drawn_traffic_policy(draw: st.DrawFn, name: str, time: str, services: Sequence[str] = REFERENCES) -> Object:
    """Return an XBackendTrafficPolicy for one or two of the Services."""
    targets = draw(st.lists(st.sampled_from(services), min_size=1, max_size=2, unique=True))
    written = traffic_policy(name, *targets, metadata={"creationTimestamp": time})
    return written | {"spec": {**written["spec"], **draw(BUDGETS), **draw(SESSIONS)}}


def policy(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a BackendTLSPolicy for one or two of the Services."""
    return edge.policy(
        draw, name, time, draw(st.lists(st.sampled_from(REFERENCES), min_size=1, max_size=2, unique=True))
    )


def _grpc_rule(draw: st.DrawFn) -> Object:
    rule: Object = {"backendRefs": _backends(draw)}
    if matches := [_grpc_match(draw) for _ in range(draw(st.integers(0, 2)))]:
        rule["matches"] = matches
    if draw(MARKS):
        rule["filters"] = [draw(st.one_of(EDITS, st.just(filters.mirror(draw, backend_ref("b")))))]
    for backend in rule["backendRefs"] if draw(MARKS) else ():
        backend["filters"] = [draw(EDITS)]
    if draw(MARKS):
        rule |= draw(SESSIONS)
    return rule


def _grpc_match(draw: st.DrawFn) -> Object:
    match: Object = {}
    kind = draw(st.sampled_from((None, "Exact", "Exact", "RegularExpression")))
    if kind:
        texts = [{"service": draw(st.sampled_from(GRPC_SERVICES))}, {"method": draw(st.sampled_from(GRPC_METHODS))}]
        if kind == "RegularExpression":
            texts = [{"service": "pkg[.].*"}, {"method": "G.*"}]
        first, second = draw(st.sampled_from(((0, 1), (0, 0), (1, 1))))
        match["method"] = {"type": kind} | texts[first] | texts[second]
    if draw(MARKS | st.booleans()):
        match["headers"] = [_text(draw, "x-a")]
    return match


def _parents() -> st.SearchStrategy[list[Object]]:
    service = st.builds(service_parent, st.sampled_from("aab"), st.sampled_from((0, 8080)))
    sections: Sequence[Object] = (
        {},
        {},
        {"sectionName": "http"},
        {"sectionName": "names"},
        {"port": 8002},
        {"sectionName": "https"},
        {"port": 8446},
        OF_SET,
    )
    gateways = st.sampled_from(sections).map(lambda more: {"name": GATEWAY} | more)
    return st.one_of(
        gateways.map(lambda parent: [parent]),
        service.map(lambda parent: [parent]),
        st.tuples(gateways, service).map(list),
    )


def _rule(draw: st.DrawFn) -> Object:
    backends = _backends(draw)
    matches = [_match(draw) for _ in range(draw(st.integers(0, 2)))]
    rule: Object = {"backendRefs": backends} | ({"matches": matches} if matches else {})
    rule = filters.filtered(draw, rule, matches)
    for settings, chance in ((RESILIENCE, MARKS), (SESSIONS, OFTEN)):
        if draw(chance) and "backendRefs" in rule:
            rule |= draw(settings)
    return rule


def _backends(draw: st.DrawFn, *, least: int = 0) -> list[Object]:
    """Return `least` to three backends: mostly Services, few of them servers outside the mesh."""
    names = draw(
        st.lists(
            st.one_of(*[st.sampled_from(REFERENCES)] * 4, st.sampled_from(EXTERNALS)),
            min_size=least,
            max_size=3,
            unique=True,
        )
    )
    weights = st.sampled_from((0, 1, 1, 2, 9))
    backends = [
        filters.reference_of(name, draw(st.sampled_from((8080, 8080, 1080))), weight=draw(weights)) for name in names
    ]
    for backend in backends:
        if backend["name"] not in EXTERNALS and draw(MARKS):
            backend["namespace"] = "blue"
    return backends


def _match(draw: st.DrawFn) -> Object:
    match: Object = {}
    if draw(st.booleans()):
        kind, values = draw(
            st.sampled_from((("Exact", EXACT_PATHS), ("PathPrefix", PREFIXES), ("RegularExpression", REGEXES)))
        )
        match["path"] = {"type": kind, "value": draw(st.sampled_from(values))}
    if draw(st.booleans()):
        match["headers"] = [_text(draw, name) for name in draw(st.sets(st.sampled_from(("x-a", "X-B")), max_size=2))]
    if draw(MARKS | st.booleans()):
        match["queryParams"] = [_text(draw, name) for name in draw(st.sets(st.sampled_from("qr"), max_size=2))]
    if draw(MARKS):
        match["method"] = draw(st.sampled_from(("GET", "POST")))
    return match


def _text(draw: st.DrawFn, name: str) -> Object:
    kind, values = draw(st.sampled_from((("Exact", TEXTS), ("RegularExpression", PATTERNS))))
    return {"name": name, "type": kind, "value": draw(st.sampled_from(values))}


PARENTS = _parents()
