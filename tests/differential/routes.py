"""Random HTTPRoutes, GRPCRoutes, TCPRoutes and TLSRoutes whose parents are the Gateway, its ListenerSet or Services."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from tests.differential import edge
from tests.differential.backends import DECISIONS, DECISIVE, PERMIT
from tests.differential.edge import GATEWAY
from tests.make.objects import Object, backend_ref, route, service_parent

GRPC_SERVICES = ("pkg.S", "pkg.T")
GRPC_METHODS = ("Get", "Put")
GRPC_PATHS = ("/pkg.S/Get", "/pkg.S/Put", "/pkg.T/Get", "/pkg.S", "/pkg.S/Get/x", "/PKG.S/Get")
HOSTNAMES = ((), (), (), ("a.example.com",), ("*.example.com",), ("*.b.example.com", "other"))
EXACT_PATHS = ("/", "/a", "/a/b", "/b/", "/ab")
PREFIXES = ("/", "/a", "/a/", "/a/b", "/b", "/x")
REGEXES = ("/a", "/(a|b)/?", "/.*", "/a\\d+", ".*b", "(?i)/A")
REFERENCES = ("a", "a", "a", "b", "b", "c", "d", "gone")  # mostly the Services that are roots of splits
TEXTS = ("1", "a", "yes", "12", "ab")
PATTERNS = ("1|a", ".*", "[0-9]+", "a.?", "(?i)YES")
RULES = (
    *("plain", "plain", "plain", "plain", "edits", "edits"),
    *("authorization", "authorization", "mirror", "redirect", "CORS"),
)
OFTEN = st.integers(0, 2).map(lambda drawn: drawn == 1)
MARKS = st.integers(0, 11).map(lambda drawn: drawn == 7)


RESILIENCE: st.SearchStrategy[Object] = st.sampled_from(
    (
        {"timeouts": {"request": "60s", "backendRequest": "30s"}},
        {"retry": {"attempts": 2, "codes": [503]}},
        {"retry": {"attempts": 0}},
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
        {"sessionPersistence": {"sessionName": "x-own", "type": "Header"}},
    )
)
"""Sessions of a rule."""


def http_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return an HTTPRoute for the Gateway or one of its listeners, or for a Service or one of its ports."""
    parents, rules = draw(PARENTS), [_rule(draw) for _ in range(draw(st.integers(1, 3)))]
    return route(name, *rules, parents=parents, metadata={"creationTimestamp": time}, **_hostnames(draw))


def _hostnames(draw: st.DrawFn) -> Object:
    hostnames = draw(st.sampled_from(HOSTNAMES))
    return {"hostnames": list(hostnames)} if hostnames else {}


def route_to_root(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return an HTTPRoute whose rules name the Service `a` as a backend, a mirror, or both."""
    drawn = http_route(draw, name, time)
    for rule in drawn["spec"]["rules"]:
        if "backendRefs" in rule and draw(st.booleans()):
            rule["backendRefs"] = [backend_ref("a"), *draw(st.sampled_from(([], [backend_ref("d")])))]
        if "filters" not in rule and draw(st.booleans()):
            rule["filters"] = [_mirror(draw, "a")]
    return drawn


def _mirror(draw: st.DrawFn, name: str) -> Object:
    """Return a filter that mirrors requests to a Service."""
    mirror = {"backendRef": backend_ref(name), **draw(st.sampled_from(FRACTIONS))}
    return {"type": "RequestMirror", "requestMirror": mirror}


def grpc_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a GRPCRoute for the Gateway."""
    rules, metadata = [_grpc_rule(draw) for _ in range(draw(st.integers(1, 2)))], {"creationTimestamp": time}
    return route(name, *rules, parents=[{"name": GATEWAY}], kind="GRPCRoute", metadata=metadata, **_hostnames(draw))


def tcp_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a TCPRoute for all TCP ports of the Gateway, or for one TCP port."""
    parent = {"name": GATEWAY} | draw(st.sampled_from(({}, {"sectionName": "tcp"}, {"sectionName": "tcp2"})))
    rule = {"backendRefs": _backends(draw)}
    return route(name, rule, parents=[parent], kind="TCPRoute", metadata={"creationTimestamp": time})


def tls_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a TLSRoute for TLS listeners of the Gateway."""
    return edge.tls_route(draw, name, time, _backends(draw))


def udp_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a UDPRoute for the UDP listener of the Gateway; few of its backends are no UDP ports."""
    backends = [backend if draw(MARKS) else backend | {"port": edge.DATAGRAMS} for backend in _backends(draw)]
    return edge.udp_route(name, time, backends)


def consumer_route(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return an HTTPRoute of the namespace `blue` for a Service of the namespace `default`."""
    service = service_parent(draw(st.sampled_from("aab")), draw(st.sampled_from((0, 8080))), namespace="default")
    drawn = http_route(draw, name, time)
    for rule in drawn["spec"]["rules"]:
        for backend in rule.get("backendRefs", ()):
            backend["namespace"] = "default"
    return drawn | {
        "metadata": drawn["metadata"] | {"namespace": "blue"},
        "spec": drawn["spec"] | {"parentRefs": [service]},
    }


def policy(draw: st.DrawFn, name: str, time: str) -> Object:
    """Return a BackendTLSPolicy for one of the Services."""
    return edge.policy(draw, name, time, draw(st.sampled_from(REFERENCES)))


def _grpc_rule(draw: st.DrawFn) -> Object:
    rule: Object = {"backendRefs": _backends(draw)}
    if matches := [_grpc_match(draw) for _ in range(draw(st.integers(0, 2)))]:
        rule["matches"] = matches
    if draw(MARKS):
        rule["filters"] = [draw(EDITS)]
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
        {"kind": "ListenerSet", "name": edge.SET},
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
    kind = draw(st.sampled_from(RULES))
    if kind == "redirect":
        rule["filters"] = [{"type": "RequestRedirect", "requestRedirect": _redirect(draw, matches)}]
        del rule["backendRefs"]
    elif kind == "edits":
        rule["filters"] = _edits(draw, matches)
        _filter_backends(draw, backends, matches)
    elif kind == "authorization":
        rule["filters"] = [{"type": "ExternalAuth", "externalAuth": _authorization(draw)}]
    elif kind == "CORS":
        rule["filters"] = [{"type": "CORS", "cors": draw(POLICIES)}]
    elif kind == "mirror":
        copied_to = draw(st.lists(st.sampled_from(REFERENCES), min_size=1, max_size=2, unique=True))
        rule["filters"] = [_mirror(draw, name) for name in copied_to]
    for settings, chance in ((RESILIENCE, MARKS), (SESSIONS, OFTEN)):
        if draw(chance) and "backendRefs" in rule:
            rule |= draw(settings)
    return rule


def _filter_backends(draw: st.DrawFn, backends: Sequence[Object], matches: Sequence[Object]) -> None:
    """Give some backends filters of their own."""
    for backend in backends:
        if draw(st.booleans()):
            backend["filters"] = _edits(draw, matches)
        elif draw(st.sampled_from((True, False, False))):
            backend["filters"] = [{"type": "RequestRedirect", "requestRedirect": _redirect(draw, matches)}]


def _authorization(draw: st.DrawFn) -> Object:
    """Return a filter whose server decides by the header `x-a`; the members are such servers."""
    http = {"path": DECISIONS, "allowedHeaders": [DECISIVE], "allowedResponseHeaders": [PERMIT]}
    return {"protocol": "HTTP", "backendRef": backend_ref(draw(st.sampled_from(REFERENCES))), "http": http}


def _backends(draw: st.DrawFn) -> list[Object]:
    return [
        backend_ref(name, draw(st.sampled_from((8080, 8080, 1080))), weight=draw(st.sampled_from((0, 1, 1, 2, 9))))
        for name in draw(st.lists(st.sampled_from(REFERENCES), max_size=3, unique=True))
    ]


def _edits(draw: st.DrawFn, matches: Sequence[Object]) -> list[Object]:
    """Return filters that change requests and responses, each type at most once."""
    rewrite: dict[str, Any] = {"type": "URLRewrite", "urlRewrite": {}}
    if draw(st.booleans()):
        rewrite["urlRewrite"]["hostname"] = draw(st.sampled_from(("b.org", "c.example.com")))
    if draw(st.booleans()):
        rewrite["urlRewrite"]["path"] = _path_edit(draw, matches)
    edits = draw(st.lists(EDITS, max_size=2, unique_by=lambda edit: str(edit["type"])))
    return edits + [rewrite] * bool(rewrite["urlRewrite"])


def _redirect(draw: st.DrawFn, matches: Sequence[Object]) -> Object:
    redirect: Object = {"statusCode": draw(st.sampled_from((301, 302, 303, 307, 308)))}
    for field, values in REDIRECTS.items():
        if draw(st.booleans()):
            redirect[field] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        redirect["path"] = _path_edit(draw, matches)
    return redirect


def _path_edit(draw: st.DrawFn, matches: Sequence[Object]) -> Object:
    only = matches[0].get("path", {"type": "PathPrefix"}) if len(matches) == 1 else {}
    if (not matches or only.get("type") == "PathPrefix") and draw(st.booleans()):
        return {"type": "ReplacePrefixMatch", "replacePrefixMatch": draw(st.sampled_from(NEW_PATHS))}
    return {"type": "ReplaceFullPath", "replaceFullPath": draw(st.sampled_from(NEW_PATHS))}


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


FRACTIONS: Sequence[Object] = (
    {},
    {"percent": 0},
    {"percent": 50},
    {"percent": 100},
    {"fraction": {"numerator": 1, "denominator": 4}},
)
PARENTS = _parents()
ORIGINS = ("https://a.org", "https://b.a.org", "http://b.org:8080", "null")
POLICIES = st.fixed_dictionaries(
    {"allowOrigins": st.sampled_from((["*"], ["https://a.org", "https://*.a.org"], []))},
    optional={
        "allowMethods": st.sampled_from((["*"], ["GET", "PUT"])),
        "allowHeaders": st.just(["x-a"]),
        "allowCredentials": st.booleans(),
    },
)
SENT_ORIGINS = st.sampled_from(ORIGINS).map(lambda origin: ("Origin", origin))
PREFLIGHTS = st.tuples(st.sampled_from(ORIGINS), st.sampled_from(("GET", "PUT", ""))).map(
    lambda drawn: [("Origin", drawn[0]), ("Access-Control-Request-Method", drawn[1])]
)
"""Headers of preflights: their origin, and the method that they announce, which is empty in requests that are none."""
REDIRECTS: dict[str, Sequence[Any]] = {
    "hostname": ("b.org", "c.example.com"),
    "scheme": ("http", "https"),
    "port": (80, 443, 8443, 8000),
}
NEW_PATHS = ("/", "/n", "/n/", "/n/m", "n", "", "/n%20m", "/\\1")


def _edit(kind: str, field: str, names: Sequence[str]) -> st.SearchStrategy[Object]:
    """Return a strategy for header modifiers. No name is in two lists: the order of set, add and remove is undefined."""
    values = st.sampled_from(("1", "n", "", "a b", "%REQ(x-a)%", "100%"))
    parts = st.dictionaries(
        st.sampled_from(names), st.tuples(st.sampled_from(("set", "add", "remove")), values), min_size=1, max_size=3
    )
    return parts.map(
        lambda edits: {
            "type": kind,
            field: {
                key: [
                    name if key == "remove" else {"name": name, "value": text}
                    for name, (to, text) in edits.items()
                    if to == key
                ]
                for key in sorted({to for to, _ in edits.values()})
            },
        }
    )


RESPONSE_NAMES = ("x-r", "x-s", "X-T")
EDITS = st.one_of(
    _edit("RequestHeaderModifier", "requestHeaderModifier", ("x-n", "X-A", "x-b", "accept", "user-agent", "host")),
    _edit("ResponseHeaderModifier", "responseHeaderModifier", RESPONSE_NAMES),
)
