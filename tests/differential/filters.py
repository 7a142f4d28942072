"""Random filters of rules and backends: each type alone, and several of them together."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.differential.backends import DECISIONS, DECISIVE, PERMIT
from tests.differential.permissions import JUDGE, JUDGE_PORT
from tests.make.objects import Object, backend_ref, external_ref

REFERENCES = ("a", "a", "a", "b", "b", "c", "d", "gone")  # mostly the Services that are roots of splits
EXTERNALS = ("x-plain", "x-tls", "x-h2", "x-gone")
"""XBackends; the last one does not exist."""
OF_HTTP1 = ("x-plain", "x-tls", "x-tls", "x-gone")
"""Those that may be authorization servers: over HTTP/2, members decide nothing."""
RULES = (
    *("plain", "plain", "plain", "plain", "edits", "edits"),
    *("authorization", "authorization", "mirror", "redirect", "CORS"),
    *("several", "several", "several"),
)
FRACTIONS: Sequence[Object] = (
    {},
    {"percent": 0},
    {"percent": 50},
    {"percent": 100},
    {"fraction": {"numerator": 1, "denominator": 4}},
)
ORIGINS = ("https://a.org", "https://b.a.org", "http://b.org:8080", "null")
POLICIES = st.fixed_dictionaries(
    {"allowOrigins": st.sampled_from((["*"], ["https://a.org", "https://*.a.org"], []))},
    optional={
        "allowMethods": st.sampled_from((["*"], ["GET", "PUT"])),
        "allowHeaders": st.just(["x-a"]),
        "exposeHeaders": st.sampled_from((["*"], ["x-r"])),
        "allowCredentials": st.sampled_from((True, True, False)),
        "maxAge": st.sampled_from((1, 600)),
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
RESPONSE_EDITS = _edit("ResponseHeaderModifier", "responseHeaderModifier", RESPONSE_NAMES)
EDITS = st.one_of(
    _edit("RequestHeaderModifier", "requestHeaderModifier", ("x-n", "X-A", "x-b", "accept", "user-agent", "host")),
    RESPONSE_EDITS,
)


def filtered(draw: st.DrawFn, rule: Object, matches: Sequence[Object]) -> Object:
    """Return a rule of an HTTPRoute with filters, or without; backends may have filters too. A redirect has no backends."""
    kind = draw(st.sampled_from(RULES))
    chosen = [name for name in OF_RULES if draw(st.booleans())] if kind == "several" else [kind]
    filters = [written for name in chosen if name in OF_RULES for written in OF_RULES[name](draw, matches)]
    if chosen == ["redirect"] or (kind == "several" and draw(st.integers(0, 3)) == 1):
        filters = [written for written in filters if written["type"] not in {"URLRewrite", "RequestMirror"}]
        filters.append(redirecting(draw, matches))
        rule = {name: value for name, value in rule.items() if name != "backendRefs"}
    elif "edits" in chosen or kind == "several":
        _filter_backends(draw, rule["backendRefs"], matches)
    return rule | ({"filters": filters} if filters else {})


def _filter_backends(draw: st.DrawFn, backends: Sequence[Object], matches: Sequence[Object]) -> None:
    """Give some backends filters of their own."""
    for backend in backends:
        if draw(st.booleans()):
            backend["filters"] = edits(draw, matches)
        elif draw(st.sampled_from((True, False, False))):
            of_responses = draw(st.lists(RESPONSE_EDITS, max_size=1))
            backend["filters"] = [redirecting(draw, matches), *of_responses]


def mirror(draw: st.DrawFn, reference: Object) -> Object:
    """Return a filter that mirrors requests to a backend."""
    return {"type": "RequestMirror", "requestMirror": {"backendRef": reference, **draw(st.sampled_from(FRACTIONS))}}


def reference_of(name: str, number: int = 8080, **fields: Any) -> Object:
    """Return a reference to a Service, or to the XBackend with the name, which needs no port."""
    return external_ref(name, **fields) if name in EXTERNALS else backend_ref(name, number, **fields)


def _mirrors(draw: st.DrawFn, _matches: Sequence[Object]) -> list[Object]:
    names = draw(st.lists(st.sampled_from((*REFERENCES, *EXTERNALS)), min_size=1, max_size=2, unique=True))
    elsewhere: Object = {"namespace": "blue"} if draw(st.integers(0, 5)) == 1 else {}
    return [mirror(draw, reference_of(name) | (elsewhere if name in REFERENCES else {})) for name in names]


def _policies(draw: st.DrawFn, _matches: Sequence[Object]) -> list[Object]:
    return [{"type": "CORS", "cors": draw(POLICIES)}]


def _authorizations(draw: st.DrawFn, _matches: Sequence[Object]) -> list[Object]:
    """Return a filter whose server decides by the header `x-a`: over HTTP one of the members, over gRPC the judge."""
    body = draw(st.sampled_from(({}, {}, {"forwardBody": {"maxSize": 100}})))
    if draw(st.booleans()):
        return [authorization_by_http(draw(st.sampled_from((*REFERENCES, *OF_HTTP1))), **body)]
    grpc = draw(st.sampled_from(({}, {"allowedHeaders": [DECISIVE]})))
    judge = backend_ref(draw(st.sampled_from((JUDGE, JUDGE, "gone"))), JUDGE_PORT)
    server: Object = {"protocol": "GRPC", "backendRef": judge, "grpc": grpc}
    return [{"type": "ExternalAuth", "externalAuth": server | body}]


def authorization_by_http(name: str, **body: Object) -> Object:
    """Return a filter whose authorization server is a Service or an XBackend with HTTP."""
    http = {"path": DECISIONS, "allowedHeaders": [DECISIVE], "allowedResponseHeaders": [PERMIT]}
    server = {"protocol": "HTTP", "backendRef": reference_of(name), "http": http}
    return {"type": "ExternalAuth", "externalAuth": server | body}


def edits(draw: st.DrawFn, matches: Sequence[Object]) -> list[Object]:
    """Return filters that change requests and responses, each type at most once."""
    rewrite: dict[str, Any] = {"type": "URLRewrite", "urlRewrite": {}}
    if draw(st.booleans()):
        rewrite["urlRewrite"]["hostname"] = draw(st.sampled_from(("b.org", "c.example.com")))
    if draw(st.booleans()):
        rewrite["urlRewrite"]["path"] = _path_edit(draw, matches)
    written = draw(st.lists(EDITS, max_size=2, unique_by=lambda edit: str(edit["type"])))
    return written + [rewrite] * bool(rewrite["urlRewrite"])


def redirecting(draw: st.DrawFn, matches: Sequence[Object]) -> Object:
    """Return a filter that redirects requests with the matches of a rule."""
    redirect: Object = {"statusCode": draw(st.sampled_from((301, 302, 303, 307, 308)))}
    for field, values in REDIRECTS.items():
        if draw(st.booleans()):
            redirect[field] = draw(st.sampled_from(values))
    if draw(st.booleans()):
        redirect["path"] = _path_edit(draw, matches)
    return {"type": "RequestRedirect", "requestRedirect": redirect}


def _path_edit(draw: st.DrawFn, matches: Sequence[Object]) -> Object:
    only = matches[0].get("path", {"type": "PathPrefix"}) if len(matches) == 1 else {}
    if (not matches or only.get("type") == "PathPrefix") and draw(st.booleans()):
        return {"type": "ReplacePrefixMatch", "replacePrefixMatch": draw(st.sampled_from(NEW_PATHS))}
    return {"type": "ReplaceFullPath", "replaceFullPath": draw(st.sampled_from(NEW_PATHS))}


OF_RULES: dict[str, Callable[[st.DrawFn, Sequence[Object]], list[Object]]] = {
    "edits": edits,
    "authorization": _authorizations,
    "CORS": _policies,
    "mirror": _mirrors,
}
"""The filters of rules that keep their backends, which can all be in one rule."""
