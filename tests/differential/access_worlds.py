"""Random pods with access rules, and calls to these pods, including headers and paths that attackers try."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from hypothesis import strategies as st
from tests.differential import odd_headers
from tests.differential.http_exchange import HttpVersion
from tests.differential.sidecar_lab import ADDRESS, CALLERS, PLAINTEXT, POD, POD_PORTS, STRANGERS, AccessWorld
from tests.differential.worlds import SELDOM, TIMES
from tests.make.objects import (
    Object,
    account_ref,
    authorization_policy,
    caller_rule,
    container,
    endpoint,
    endpoint_slice,
    headgate_keys,
    http_rule,
    obj,
    pod,
    port,
    service,
    smi_tcp_route,
    split,
    tcp_rule,
    tls_config,
)

from headgate.model.mutual_tls import TlsMode
from headgate.resources.registry import key_of
from headgate.settings import Settings

SERVICES = ("s1", "s2", "s3")
SERVICE_PORTS = (80, 8080, 9000)
LEADS = st.sampled_from((8080, 8080, 8080, 9090, 7070))
PORT = itemgetter(0)
SPOKEN = (*["http"] * 6, "", "grpc", "tcp", "tcp", "tcp", "tls", "mysql", "unheard-of")
PORT_NAMES = st.sampled_from(("x", "http-x", "tcp-x", "grpc"))
GROUPS = ("g1", "g2")
TCP_ROUTES = ("t1", "t2")
PATTERNS = st.sampled_from(
    (
        "/a",
        "/a",
        "/a",
        "/a",
        "/",
        "^/a",
        "/a$",
        "/a/.*",
        "/(a|b)/?",
        "/[^/]+",
        ".*",
        ".*b",
        "(?i)/A",
        "/a.b",
        "/a\\.b",
        "/a[^/]+",
        "(?s)/a.*",
        "/[^\\x00-\\x7f]+",
        "",
        "[",
    )
)
PARTS = st.sampled_from(
    (*[("path",)] * 4, *[("headers",)] * 3, ("methods",), ("path", "headers"), ("path", "methods"), ())
)
METHODS = ("*", "GET", "GET", "GET", "POST", "HEAD", "DELETE", "OPTIONS", "CONNECT", "TRACE")
CERTIFICATE = "x-forwarded-client-cert"
TEXTS = {
    "x-a": (".*", "", "..", "1", "1|a", "1,a", "[0-9]+", "[^a]+", "[^\\x00-\\x7f]+"),
    "user-agent": (".*Firefox.*", ".+", "(?i)firefox"),
    "cookie": (".*sticky=on.*", "a=1; b=2", "a=1"),
    "host": ("a", "a(:[0-9]+)?", ".*"),
    CERTIFICATE: (".*sa/a.*", ".*URI=spiffe://cluster.local/ns/default/sa/a", ".+"),
}
HEADER_NAMES = st.one_of(
    st.sampled_from(("x-a", "x-a", "cookie", CERTIFICATE, "user-agent", "host")).map(lambda name: [name]),
    odd_headers.NAMES.map(lambda name: [name]),
    st.lists(st.sampled_from(sorted(TEXTS)), min_size=2, max_size=2, unique=True),
)
BEGINNINGS = (*["/a"] * 5, "/b", "/b", "/", "/", "", "/A", "/ab", "//a", "/./a", "/a/b", "/a/b")
ENDS = (
    "/b",
    "/..",
    "/../b",
    "//b",
    "/./b",
    "/.",
    "/...",
    "/.b",
    "b.",
    "%2fb",
    "%252eb",
    "%c0%aeb",
    "%u002eb",
    "..%00",
    "%e0%a4%85",
    "%2F..%2Fb",
    "%2e%2E/b",
    "%252e",
    "%5cb",
    "\\b",
    "\\..\\b",
    ";p=1",
    "..;/b",
    "%",
    "%2",
    "%00",
    "%41",
    ".b",
    "?",
    "?q=/../b",
    "?q=%2f//",
    "?a?b=\\",
    "#b",
    "/" + "x" * 30_000,
    "*",
    "é",
    "\udcff",  # bytes that are not UTF-8
    "/\udcc0\udcae\udcc0\udcae/b",
)
HEADERS = (
    ("x-a", "1"),
    ("X-A", "a"),
    ("x-a", ""),
    ("x-a", "é"),
    ("user-agent", "x Firefox y"),
    ("cookie", "a=1"),
    ("cookie", "b=2"),
    ("cookie", "x; sticky=on"),
    (CERTIFICATE, "By=spiffe://cluster.local/ns/default/sa/x;Hash=0;URI=spiffe://cluster.local/ns/default/sa/a"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-envoy-original-path", "/a"),
    ("x-http-method-override", "GET"),
    ("x-original-url", "/a"),
)
AUTHORITIES = ("a", "a:8080", "b", "A")
OF_HTTP1 = (("connection", "x-a"), ("connection", "close"), ("connection", "upgrade"), ("upgrade", "websocket"))
ALL_TEXTS = TEXTS | odd_headers.CONDITIONS
SENT_METHODS = (
    *["GET"] * 9,
    "POST",
    "HEAD",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "CONNECT",
    "get",
    "PURGE",
    "LIST",
    "QUERY",
)


class Call(NamedTuple):
    """A call to the pod's `port`; with TLS, the SNI names `service` (name and port).

    With `mesh_alpn` the client offers the mesh's ALPN protocol. With `absolute` the target is a full URL.
    """

    port: int
    caller: str
    service: tuple[str, int] | None
    mesh_alpn: bool
    version: HttpVersion
    method: str
    target: str
    authority: str
    headers: tuple[tuple[str, str], ...]
    absolute: bool


@st.composite
def access_worlds(draw: st.DrawFn) -> AccessWorld:
    """Return a pod, its Services, and random TrafficTargets, XAuthorizationPolicies and TLSConfigs for it."""
    objects, leads = [_pod(draw)], list[tuple[tuple[str, int], int]]()
    for name in SERVICES[: draw(st.integers(1, len(SERVICES)))]:
        places = draw(
            st.lists(st.tuples(st.sampled_from(SERVICE_PORTS), LEADS), min_size=1, max_size=2, unique_by=PORT)
        )
        leads += [((name, number), lead) for number, lead in places]
        objects += _service(draw, name, places)
    audited = draw(st.sampled_from((st.just(value=False), st.just(value=False), st.just(value=True), st.booleans())))
    objects += [_target(draw, f"w{number}", audited) for number in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 0))))]
    objects += [_policy(draw, f"p{number}", audited) for number in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2))))]
    objects += [_group(draw, name) for name in GROUPS[: draw(st.sampled_from((2, 2, 2, 2, 2, 1, 0)))]]
    objects += [_tcp_route(draw, name) for name in TCP_ROUTES[: draw(st.sampled_from((2, 2, 2, 2, 2, 1, 0)))]]
    if draw(SELDOM):
        labels = draw(st.sampled_from(({}, {"app": "app"}, {"app": "other"})))
        objects.append(tls_config("c", labels))
    if draw(SELDOM):
        objects.append(split("s1", {"s2": 1}, name="split"))
    return AccessWorld(
        objects={key_of(written): written for written in objects},
        leads=tuple(leads),
        settings=Settings(
            mtls=draw(st.sampled_from(("permissive", "permissive", "permissive", "strict", "off"))),
            access=draw(st.sampled_from(("selected", "selected", "deny"))),
        ),
        tls_modes=draw(st.sampled_from((*[{}] * 8, *({POD: tls_mode} for tls_mode in TlsMode)))),
    )


def _pod(draw: st.DrawFn) -> Object:
    behind = ",".join(f"{number}=member-{member}" for number, member in POD_PORTS.items() if not draw(SELDOM))
    declared = draw(st.sampled_from(([], [], [{"containerPort": 7070, "name": draw(PORT_NAMES)}])))
    return pod(
        POD.partition("/")[2],
        ADDRESS,
        account="b" if draw(SELDOM) else "a",
        containers=[container(ports=declared)],
        labels={"app": "app"},
        annotations=headgate_keys(sidecar_mode="explicit", application_ports=behind),
    )


def _service(draw: st.DrawFn, name: str, places: Sequence[tuple[int, int]]) -> tuple[Object, Object]:
    """Return a Service and its EndpointSlice; `places` has pairs of a Service port and the pod's port."""
    ports = [port(number, f"{draw(PORT_NAMES)}{number}", app=draw(st.sampled_from(SPOKEN))) for number, _ in places]
    place = endpoint(ADDRESS, "" if draw(SELDOM) else "app")
    leads = {written["name"]: lead for written, (_, lead) in zip(ports, places, strict=True)}
    return (
        service(name, *ports, metadata={"creationTimestamp": draw(TIMES)}),
        endpoint_slice(name, [place], leads),
    )


def _target(draw: st.DrawFn, name: str, audited: st.SearchStrategy[bool]) -> Object:
    """Return a TrafficTarget in one of its versions; before v1alpha3 it may name a destination port (2.3).

    `audited` draws whether it is in audit mode.
    """
    version = draw(st.sampled_from(("v1alpha3", "v1alpha3", "v1alpha3", "v1alpha2", "v1alpha1")))
    number = draw(st.sampled_from((8080, 9090, 80, 9000))) if version == "v1alpha1" or draw(SELDOM) else 0
    spec = {
        "destination": account_ref("b" if draw(SELDOM) else "a", "") | ({"port": number} if number else {}),
        "sources": [
            account_ref(*caller)
            for caller in draw(
                st.lists(st.sampled_from(SOURCES), min_size=0 if draw(SELDOM) else 1, max_size=3, unique=True)
            )
        ],
        "rules": draw(st.lists(RULES, min_size=0 if draw(SELDOM) else 1, max_size=3)),
    }
    annotations = headgate_keys(mode="audit") if draw(audited) else {}
    metadata = {"creationTimestamp": draw(TIMES), "annotations": annotations}
    content: Object = {"spec": spec}
    if version == "v1alpha1":
        content = {"destination": spec["destination"], "sources": spec["sources"], "specs": spec["rules"]}
    return obj("TrafficTarget", name, version=f"access.smi-spec.io/{version}", metadata=metadata, **content)


def _policy(draw: st.DrawFn, name: str, audited: st.SearchStrategy[bool]) -> Object:
    """Return an XAuthorizationPolicy; `audited` draws whether it is in audit mode."""
    written = [
        caller_rule(*draw(POLICY_CALLERS), ports=draw(POLICY_PORTS))
        for _ in range(0 if draw(SELDOM) else draw(st.integers(1, 2)))
    ]
    rules = [{**rule, "sources": None} if draw(SELDOM) else rule for rule in written]
    labels = {"app": "other"} if draw(SELDOM) else draw(st.sampled_from(({}, {"app": "app"})))
    annotations = headgate_keys(mode="audit") if draw(audited) else {}
    return authorization_policy(name, labels, *rules, annotations=annotations)


POLICY_PORTS = st.sampled_from(((), (), (8080,), (8080, 9090), (9090,), (80,), (7070, 8080)))
POLICY_CALLERS = st.lists(
    st.sampled_from(
        (
            *("a", "a", "b", "*", "blue/*", "blue/a", "gone", "headgate-system/gateway"),
            "spiffe://cluster.local/ns/default/sa/a",
            "spiffe://cluster.local/ns/default/sa",
            "spiffe://other.local/ns/default/sa/a",
        )
    ),
    max_size=3,
    unique=True,
)
SOURCES = (*[("a", "")] * 6, ("b", ""), ("b", ""), ("a", "blue"), ("gateway", "headgate-system"), ("gone", ""))
RULES = st.sampled_from(
    (
        *(http_rule(name) for name in GROUPS * 3),
        *(http_rule(name, "m0") for name in GROUPS),
        http_rule("g1", "m1", "gone"),
        *(tcp_rule(name) for name in TCP_ROUTES * 3),
        {"kind": "UDPRoute", "name": "u"},
    )
)


def _group(draw: st.DrawFn, name: str) -> Object:
    matches = [_match(draw, f"m{index}") for index in range(draw(st.integers(1, 2)))]
    if draw(SELDOM):
        version = f"specs.smi-spec.io/{draw(st.sampled_from(('v1alpha1', 'v1alpha2')))}"
        return obj("HTTPRouteGroup", name, version=version, matches=matches)
    return obj("HTTPRouteGroup", name, spec={"matches": matches})


def _match(draw: st.DrawFn, name: str) -> Object:
    """Return a match with few conditions, so that some calls match it."""
    match: dict[str, Any] = {"name": name}
    parts = draw(PARTS)
    if "path" in parts:
        match["pathRegex"] = draw(PATTERNS)
    if "methods" in parts:
        match["methods"] = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=2, unique=True))
    if "headers" in parts:
        match["headers"] = {key: draw(st.sampled_from(ALL_TEXTS[key])) for key in draw(HEADER_NAMES)}
    return match


def _tcp_route(draw: st.DrawFn, name: str) -> Object:
    if draw(SELDOM):
        version = f"specs.smi-spec.io/{draw(st.sampled_from(('v1alpha1', 'v1alpha3')))}"
        return obj("TCPRoute", name, version=version)
    ports = draw(st.lists(st.sampled_from((8080, 9090, 80, 9000, 8080, 80, 5432)), max_size=3, unique=True))
    return smi_tcp_route(name, *ports)


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[AccessWorld, list[Call]]:
    """Return an AccessWorld, and calls to its pod."""
    world = draw(access_worlds())
    return world, draw(st.lists(calls(world), min_size=10, max_size=20, unique=True))


@st.composite
def calls(draw: st.DrawFn, world: AccessWorld) -> Call:
    """Return a call; most calls are those of the mesh's own clients, with random paths."""
    meant: tuple[str, int] | None
    meant, number = draw(st.sampled_from(world.leads))
    if draw(SELDOM):
        meant, number = draw(MEANT), draw(st.sampled_from(sorted(POD_PORTS)))
    caller = draw(st.sampled_from(CALLER_LABELS))
    target = draw(st.sampled_from(BEGINNINGS)) + "".join(draw(ENDINGS))
    version = draw(VERSIONS)
    headers = draw(SAME_NAME if draw(st.integers(0, 3)) == 3 else ANY_NAME if version == "2" else ANY_OF_HTTP1)
    if version == "2" and not target.startswith("/"):
        target = f"/{target}"  # without the slash, a call takes a second over HTTP/2; see test_access_regressions
    if draw(ODD):
        headers = [*headers, *draw(odd_headers.lists(http1=version != "2"))]
    return Call(
        port=number,
        caller=caller,
        service=meant if caller != PLAINTEXT else None,
        mesh_alpn=caller != PLAINTEXT and draw(OFFERS_MESH_ALPN),
        version=version,
        method=draw(st.sampled_from(SENT_METHODS)),
        target=target,
        authority=draw(st.sampled_from(AUTHORITIES)),
        headers=tuple(headers),
        absolute=version != "2" and draw(SELDOM),
    )


VERSIONS: st.SearchStrategy[HttpVersion] = st.sampled_from(("1.1", "1.1", "2", "1.0"))
ODD = st.integers(0, 3).map(lambda drawn: drawn == 3)
ANY_NAME = st.lists(st.sampled_from(HEADERS), max_size=3)
ANY_OF_HTTP1 = st.lists(st.sampled_from(HEADERS + OF_HTTP1), max_size=3)
SAME_NAME = st.sampled_from(("x-a", "cookie")).flatmap(
    lambda name: st.lists(
        st.sampled_from([header for header in HEADERS if header[0].lower() == name]), min_size=1, max_size=3
    )
)
OFFERS_MESH_ALPN = st.sampled_from((True, True, False))
ENDINGS: st.SearchStrategy[list[str]] = st.one_of(st.just([]), st.lists(st.sampled_from(ENDS), max_size=2))
CALLER_LABELS = (*"aaaaaaaaaaaaaaaaaabbb", *CALLERS, PLAINTEXT, PLAINTEXT, *STRANGERS)
MEANT = st.one_of(st.none(), st.tuples(st.sampled_from((*SERVICES, "gone")), st.sampled_from(SERVICE_PORTS)))
