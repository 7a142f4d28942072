"""Random Gateways, and random HTTPRoutes, GRPCRoutes and TCPRoutes whose parents are these Gateways or Services."""

from hypothesis import strategies as st
from tests.properties.worlds import named

GATEWAY = "edge"
LISTENERS = (
    (8000, "", "http", "HTTP"),
    (8001, "*.example.com", "names", "HTTP"),
    (8002, "a.example.com", "one", "HTTP"),
    (8443, "", "https", "HTTPS"),
    (8444, "*.example.com", "secure-names", "HTTPS"),
    (8445, "a.example.com", "secure-one", "HTTPS"),
    (8445, "*.example.com", "secure-wildcard", "HTTPS"),
    (9000, "", "tcp", "TCP"),
    (9001, "", "tcp2", "TCP"),
)
SENT_TO = (8000, 8000, 8000, 8001, 8001, 8002, 8443, 8443, 8444, 8445, 8445, 9000, 9001)
SECURE = frozenset(port for port, _, _, protocol in LISTENERS if protocol == "HTTPS")
CONNECTIONS = frozenset(port for port, _, _, protocol in LISTENERS if protocol == "TCP")
SERVER_NAMES = ("a.example.com", "b.example.com", "a.b.example.com", "other")
CERTIFICATE = "edge"
GRPC_SERVICES = ("pkg.S", "pkg.T")
GRPC_METHODS = ("Get", "Put")
GRPC_PATHS = ("/pkg.S/Get", "/pkg.S/Put", "/pkg.T/Get", "/pkg.S", "/pkg.S/Get/x", "/PKG.S/Get")
GATEWAY_HOSTS = (
    "a.example.com",
    "b.example.com",
    "a.b.example.com",
    "example.com",
    "A.Example.com.",
    "a.example.com:8001",
    "other",
    "A.Example.com",
)
HOSTNAMES = ((), (), (), ("a.example.com",), ("*.example.com",), ("*.b.example.com", "other"))
EXACT_PATHS = ("/", "/a", "/a/b", "/b/", "/ab")
PREFIXES = ("/", "/a", "/a/", "/a/b", "/b", "/x")
REGEXES = ("/a", "/(a|b)/?", "/.*", "/a\\d+", ".*b", "(?i)/A")
REFERENCES = ("a", "a", "a", "b", "b", "c", "d", "gone")  # mostly the Services that are roots of splits
TEXTS = ("1", "a", "yes", "12", "ab")
PATTERNS = ("1|a", ".*", "[0-9]+", "a.?", "(?i)YES")
MARKS = st.integers(0, 11).map(lambda drawn: drawn == 7)


def gateway(place):
    """Yield the Gateway, which has its own address, and the Secret with its certificate."""
    listeners = [
        {"name": name, "port": port, "protocol": protocol}
        | ({"hostname": host} if host else {})
        | ({"tls": {"certificateRefs": [{"name": CERTIFICATE}]}} if protocol == "HTTPS" else {})
        for port, host, name, protocol in LISTENERS
    ]
    obj = named("Gateway", "default", GATEWAY, spec={"gatewayClassName": "headgate", "listeners": listeners})
    yield obj | {"status": {"addresses": [{"type": "IPAddress", "value": place}]}}
    data = {"tls.crt": "chain", "tls.key": "key"}
    yield named("Secret", "default", CERTIFICATE, type="kubernetes.io/tls", data=data)


def http_route(draw, name, time):
    """Return an HTTPRoute for the Gateway or one of its listeners, or for a Service or one of its ports."""
    spec = {"parentRefs": draw(PARENTS), "rules": [_rule(draw) for _ in range(draw(st.integers(1, 3)))]}
    if hostnames := draw(st.sampled_from(HOSTNAMES)):
        spec["hostnames"] = list(hostnames)
    return named("HTTPRoute", "default", name, metadata={"creationTimestamp": time}, spec=spec)


def route_to_root(draw, name, time):
    """Return an HTTPRoute whose rules name the Service `a` as a backend, a mirror, or both."""
    obj = http_route(draw, name, time)
    for rule in obj["spec"]["rules"]:
        if "backendRefs" in rule and draw(st.booleans()):
            rule["backendRefs"] = [
                {"name": "a", "port": 8080},
                *draw(st.sampled_from(([], [{"name": "d", "port": 8080}]))),
            ]
        if "filters" not in rule and draw(st.booleans()):
            mirror = {"backendRef": {"name": "a", "port": 8080}, **draw(st.sampled_from(FRACTIONS))}
            rule["filters"] = [{"type": "RequestMirror", "requestMirror": mirror}]
    return obj


def grpc_route(draw, name, time):
    """Return a GRPCRoute for the Gateway."""
    spec = {"parentRefs": [{"name": GATEWAY}], "rules": [_grpc_rule(draw) for _ in range(draw(st.integers(1, 2)))]}
    if hostnames := draw(st.sampled_from(HOSTNAMES)):
        spec["hostnames"] = list(hostnames)
    return named("GRPCRoute", "default", name, metadata={"creationTimestamp": time}, spec=spec)


def tcp_route(draw, name, time):
    """Return a TCPRoute for all TCP ports of the Gateway, or for one TCP port."""
    parent = {"name": GATEWAY} | draw(st.sampled_from(({}, {"sectionName": "tcp"}, {"sectionName": "tcp2"})))
    spec = {"parentRefs": [parent], "rules": [{"backendRefs": _backends(draw)}]}
    route = named("HTTPRoute", "default", name, metadata={"creationTimestamp": time}, spec=spec)
    return route | {"kind": "TCPRoute", "apiVersion": "gateway.networking.k8s.io/v1alpha2"}


def _grpc_rule(draw):
    found = {"backendRefs": _backends(draw)}
    if matches := [_grpc_match(draw) for _ in range(draw(st.integers(0, 2)))]:
        found["matches"] = matches
    if draw(MARKS):
        found["filters"] = [draw(EDITS)]
    return found


def _grpc_match(draw):
    found = {}
    kind = draw(st.sampled_from((None, "Exact", "Exact", "RegularExpression")))
    if kind:
        texts = [{"service": draw(st.sampled_from(GRPC_SERVICES))}, {"method": draw(st.sampled_from(GRPC_METHODS))}]
        if kind == "RegularExpression":
            texts = [{"service": "pkg[.].*"}, {"method": "G.*"}]
        first, second = draw(st.sampled_from(((0, 1), (0, 0), (1, 1))))
        found["method"] = {"type": kind} | texts[first] | texts[second]
    if draw(MARKS | st.booleans()):
        found["headers"] = [_text(draw, "x-a")]
    return found


def _parents():
    service = st.builds(
        lambda name, port: {"group": "", "kind": "Service", "name": name} | port, st.sampled_from("aab"), PORT
    )
    sections = ({}, {}, {"sectionName": "http"}, {"sectionName": "names"}, {"port": 8002}, {"sectionName": "https"})
    edge = st.sampled_from(sections).map(lambda more: {"name": GATEWAY} | more)
    return st.one_of(
        edge.map(lambda item: [item]), service.map(lambda item: [item]), st.tuples(edge, service).map(list)
    )


def _rule(draw):
    backends = _backends(draw)
    found = {"backendRefs": backends}
    if matches := [_match(draw) for _ in range(draw(st.integers(0, 2)))]:
        found["matches"] = matches
    kind = draw(st.integers(0, 11))
    if kind == 7:
        found["filters"] = [{"type": "RequestRedirect", "requestRedirect": _redirect(draw, matches)}]
        del found["backendRefs"]
    elif kind in {5, 6}:
        found["filters"] = _edits(draw, matches)
        for backend in backends:
            if draw(st.booleans()):
                backend["filters"] = _edits(draw, matches, path=len(backends) == 1)
    elif kind == 4:
        found["filters"] = [
            {
                "type": "RequestMirror",
                "requestMirror": {"backendRef": {"name": name, "port": 8080}, **draw(st.sampled_from(FRACTIONS))},
            }
            for name in draw(st.lists(st.sampled_from(REFERENCES), min_size=1, max_size=2, unique=True))
        ]
    return found


def _backends(draw):
    return [
        {
            "name": name,
            "port": draw(st.sampled_from((8080, 8080, 1080))),
            "weight": draw(st.sampled_from((0, 1, 1, 2, 9))),
        }
        for name in draw(st.lists(st.sampled_from(REFERENCES), max_size=3, unique=True))
    ]


def _edits(draw, matches, *, path=True):
    """Return filters that change requests and responses, each type at most once."""
    rewrite = {"type": "URLRewrite", "urlRewrite": {}}
    if draw(st.booleans()):
        rewrite["urlRewrite"]["hostname"] = draw(st.sampled_from(("b.org", "c.example.com")))
    if path and draw(st.booleans()):
        rewrite["urlRewrite"]["path"] = _path_edit(draw, matches)
    found = draw(st.lists(EDITS, max_size=2, unique_by=lambda item: item["type"]))
    return found + [rewrite] * bool(rewrite["urlRewrite"])


def _redirect(draw, matches):
    found = {"statusCode": draw(st.sampled_from((301, 302, 303, 307, 308)))}
    for field, values in REDIRECTS.items():
        if draw(st.booleans()):
            found[field] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        found["path"] = _path_edit(draw, matches)
    return found


def _path_edit(draw, matches):
    only = matches[0].get("path", {"type": "PathPrefix"}) if len(matches) == 1 else {}
    if (not matches or only.get("type") == "PathPrefix") and draw(st.booleans()):
        return {"type": "ReplacePrefixMatch", "replacePrefixMatch": draw(st.sampled_from(NEW_PATHS))}
    return {"type": "ReplaceFullPath", "replaceFullPath": draw(st.sampled_from(NEW_PATHS))}


def _match(draw):
    found = {}
    if draw(st.booleans()):
        kind, values = draw(
            st.sampled_from((("Exact", EXACT_PATHS), ("PathPrefix", PREFIXES), ("RegularExpression", REGEXES)))
        )
        found["path"] = {"type": kind, "value": draw(st.sampled_from(values))}
    if draw(st.booleans()):
        found["headers"] = [_text(draw, name) for name in draw(st.sets(st.sampled_from(("x-a", "X-B")), max_size=2))]
    if draw(MARKS | st.booleans()):
        found["queryParams"] = [_text(draw, name) for name in draw(st.sets(st.sampled_from("qr"), max_size=2))]
    if draw(MARKS):
        found["method"] = draw(st.sampled_from(("GET", "POST")))
    return found


def _text(draw, name):
    kind, values = draw(st.sampled_from((("Exact", TEXTS), ("RegularExpression", PATTERNS))))
    return {"name": name, "type": kind, "value": draw(st.sampled_from(values))}


FRACTIONS = ({}, {"percent": 0}, {"percent": 50}, {"percent": 100}, {"fraction": {"numerator": 1, "denominator": 4}})
PORT = st.sampled_from(({}, {"port": 8080}))
PARENTS = _parents()
REDIRECTS = {
    "hostname": ("b.org", "c.example.com"),
    "scheme": ("http", "https"),
    "port": (80, 443, 8443, 8000),
}
NEW_PATHS = ("/", "/n", "/n/", "/n/m", "n", "", "/n%20m", "/\\1")


def _edit(kind, field, names):
    """Return a strategy for header modifiers. No name is in two lists: the order of set, add and remove is undefined."""
    values = st.sampled_from(("1", "n", "", "a b", "%REQ(x-a)%", "100%"))
    parts = st.dictionaries(
        st.sampled_from(names), st.tuples(st.sampled_from(("set", "add", "remove")), values), min_size=1, max_size=3
    )
    return parts.map(
        lambda found: {
            "type": kind,
            field: {
                key: [
                    name if key == "remove" else {"name": name, "value": text}
                    for name, (to, text) in found.items()
                    if to == key
                ]
                for key in sorted({to for to, _ in found.values()})
            },
        }
    )


RESPONSE_NAMES = ("x-r", "x-s", "X-T")
EDITS = st.one_of(
    _edit("RequestHeaderModifier", "requestHeaderModifier", ("x-n", "X-A", "x-b", "accept", "user-agent", "host")),
    _edit("ResponseHeaderModifier", "responseHeaderModifier", RESPONSE_NAMES),
)
