"""Random Gateways and HTTPRoutes, on Gateways and on Services; parts of the worlds."""

from hypothesis import strategies as st
from tests.properties.worlds import named

GATEWAY = "edge"
LISTENERS = ((8000, "", "http"), (8001, "*.example.com", "names"), (8002, "a.example.com", "one"))
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
TEXTS = ("1", "a", "yes", "12", "ab")
PATTERNS = ("1|a", ".*", "[0-9]+", "a.?", "(?i)YES")
MARKS = st.integers(0, 11).map(lambda drawn: drawn == 7)


def gateway(place):
    """Return the Gateway, at an address of its own."""
    listeners = [
        {"name": name, "port": port, "protocol": "HTTP"} | ({"hostname": host} if host else {})
        for port, host, name in LISTENERS
    ]
    obj = named("Gateway", "default", GATEWAY, spec={"gatewayClassName": "headgate", "listeners": listeners})
    return obj | {"status": {"addresses": [{"type": "IPAddress", "value": place}]}}


def http_route(draw, name, time):
    """Return an HTTPRoute for the Gateway, or one of its listeners, or for a Service, or one of its ports."""
    spec = {"parentRefs": draw(PARENTS), "rules": [_rule(draw) for _ in range(draw(st.integers(1, 3)))]}
    if hostnames := draw(st.sampled_from(HOSTNAMES)):
        spec["hostnames"] = list(hostnames)
    return named("HTTPRoute", "default", name, metadata={"creationTimestamp": time}, spec=spec)


def _parents():
    service = st.builds(
        lambda name, port: {"group": "", "kind": "Service", "name": name} | port, st.sampled_from("aab"), PORT
    )
    section = st.sampled_from(({}, {}, {"sectionName": "http"}, {"sectionName": "names"}, {"port": 8002}))
    edge = section.map(lambda more: {"name": GATEWAY} | more)
    return st.one_of(
        edge.map(lambda item: [item]), service.map(lambda item: [item]), st.tuples(edge, service).map(list)
    )


def _rule(draw):
    backends = [
        {
            "name": name,
            "port": draw(st.sampled_from((8080, 8080, 1080))),
            "weight": draw(st.sampled_from((0, 1, 1, 2, 9))),
        }
        for name in draw(st.lists(st.sampled_from(("a", "b", "c", "d", "gone")), max_size=3, unique=True))
    ]
    found = {"backendRefs": backends}
    if matches := [_match(draw) for _ in range(draw(st.integers(0, 2)))]:
        found["matches"] = matches
    if draw(MARKS):
        found["filters"] = [{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.org", "statusCode": 301}}]
        del found["backendRefs"]
    elif draw(MARKS) and backends:
        edit = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": "x-n", "value": "1"}]}}
        draw(st.sampled_from((found, backends[0])))["filters"] = [edit]
    elif draw(MARKS):
        found["filters"] = [
            {
                "type": "RequestMirror",
                "requestMirror": {"backendRef": {"name": name, "port": 8080}, **draw(st.sampled_from(FRACTIONS))},
            }
            for name in draw(st.lists(st.sampled_from(("a", "b", "gone")), min_size=1, max_size=2, unique=True))
        ]
    return found


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
