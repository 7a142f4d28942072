"""Random pods with access rules, and calls to these pods, including headers and paths that attackers try."""

from operator import itemgetter
from typing import NamedTuple

from hypothesis import strategies as st
from tests.differential import odd_headers
from tests.differential.sidecar_lab import ADDRESS, CALLERS, PLAINTEXT, POD, POD_PORTS, STRANGERS
from tests.differential.worlds import SELDOM, TIMES
from tests.properties.worlds import key_of, named

from headgate.model.routing import TlsMode
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
    "x-a": (".*", "", "1", "1|a", "1,a", "[0-9]+"),
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
)
HEADERS = (
    ("x-a", "1"),
    ("X-A", "a"),
    ("x-a", ""),
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
SENT_METHODS = (*["GET"] * 9, "POST", "HEAD", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "get", "PURGE")


class AccessWorld(NamedTuple):
    """Objects by key, settings of the compiler, and TLS modes by pod (empty: each pod has its wanted mode).

    `leads` pairs each Service port with its target port on the pod.
    """

    objects: dict
    leads: tuple
    settings: Settings
    tls_modes: dict


class Call(NamedTuple):
    """A call to the pod's `port`; with TLS, the SNI names `service` (name and port).

    With `mesh_alpn` the client offers the mesh's ALPN protocol. With `absolute` the target is a full URL.
    """

    port: int
    caller: str
    service: tuple[str, int] | None
    mesh_alpn: bool
    version: str
    method: str
    target: str
    authority: str
    headers: tuple[tuple[str, str], ...]
    absolute: bool


@st.composite
def access_worlds(draw):
    """Return a pod, its Services, and random TrafficTargets and TLSConfigs for it."""
    found, leads = [_pod(draw)], []
    for name in SERVICES[: draw(st.integers(1, len(SERVICES)))]:
        places = draw(
            st.lists(st.tuples(st.sampled_from(SERVICE_PORTS), LEADS), min_size=1, max_size=2, unique_by=PORT)
        )
        leads += [((name, port), lead) for port, lead in places]
        found += _service(draw, name, places)
    audited = draw(st.sampled_from((st.just(value=False), st.just(value=False), st.just(value=True), st.booleans())))
    found += [_target(draw, f"w{number}", audited) for number in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 0))))]
    found += [_group(draw, name) for name in GROUPS[: draw(st.sampled_from((2, 2, 2, 2, 2, 1, 0)))]]
    found += [_tcp_route(draw, name) for name in TCP_ROUTES[: draw(st.sampled_from((2, 2, 2, 2, 2, 1, 0)))]]
    if draw(SELDOM):
        labels = draw(st.sampled_from(({}, {"app": "app"}, {"app": "other"})))
        found.append(named("TLSConfig", "default", "c", spec={"selector": {"matchLabels": labels}}))
    if draw(SELDOM):
        spec = {"service": "s1", "backends": [{"service": "s2", "weight": 1}]}
        found.append(named("TrafficSplit", "default", "split", spec=spec))
    return AccessWorld(
        objects={key_of(obj): obj for obj in found},
        leads=tuple(leads),
        settings=Settings(
            mtls=draw(st.sampled_from(("permissive", "permissive", "permissive", "strict", "off"))),
            access=draw(st.sampled_from(("selected", "selected", "deny"))),
        ),
        tls_modes=draw(st.sampled_from((*[{}] * 8, *({POD: tls_mode} for tls_mode in TlsMode)))),
    )


def _pod(draw):
    behind = ",".join(f"{port}=member-{number}" for port, number in POD_PORTS.items() if not draw(SELDOM))
    declared = draw(st.sampled_from(([], [], [{"containerPort": 7070, "name": draw(PORT_NAMES)}])))
    namespace, name = POD.split("/")
    return named(
        "Pod",
        namespace,
        name,
        metadata={
            "labels": {"app": "app"},
            "annotations": {"headgate.dev/sidecar": "explicit", "headgate.dev/application-ports": behind},
        },
        spec={
            "serviceAccountName": "b" if draw(SELDOM) else "a",
            "containers": [{"name": "app", "ports": declared}],
        },
        status={"podIP": ADDRESS, "phase": "Running"},
    )


def _service(draw, name, places):
    """Return a Service and its EndpointSlice; `places` are pairs of a Service port and the pod's port."""
    ports = [{"name": f"{draw(PORT_NAMES)}{port}", "port": port} | _spoken(draw) for port, _ in places]
    endpoint = {"addresses": [ADDRESS]}
    if not draw(SELDOM):
        endpoint["targetRef"] = {"kind": "Pod", "namespace": "default", "name": "app"}
    return (
        named("Service", "default", name, metadata={"creationTimestamp": draw(TIMES)}, spec={"ports": ports}),
        named(
            "EndpointSlice",
            "default",
            name,
            metadata={"labels": {"kubernetes.io/service-name": name}},
            addressType="IPv4",
            endpoints=[endpoint],
            ports=[{"name": port["name"], "port": lead} for port, (_, lead) in zip(ports, places, strict=True)],
        ),
    )


def _spoken(draw):
    word = draw(st.sampled_from(SPOKEN))
    return {"appProtocol": word} if word else {}


def _target(draw, name, audited):
    """Return a TrafficTarget in one of its versions; before v1alpha3 it may name a destination port (2.3).

    `audited` draws whether it is in audit mode.
    """
    version = draw(st.sampled_from(("v1alpha3", "v1alpha3", "v1alpha3", "v1alpha2", "v1alpha1")))
    port = draw(st.sampled_from((8080, 9090, 80, 9000))) if version == "v1alpha1" or draw(SELDOM) else 0
    spec = {
        "destination": _subject("b" if draw(SELDOM) else "a") | ({"port": port} if port else {}),
        "sources": [
            _subject(*caller)
            for caller in draw(
                st.lists(st.sampled_from(SOURCES), min_size=0 if draw(SELDOM) else 1, max_size=3, unique=True)
            )
        ],
        "rules": draw(st.lists(RULES, min_size=0 if draw(SELDOM) else 1, max_size=3)),
    }
    annotations = {"headgate.dev/mode": "audit"} if draw(audited) else {}
    metadata = {"creationTimestamp": draw(TIMES), "annotations": annotations}
    obj = named("TrafficTarget", "default", name, metadata=metadata, spec=spec)
    if version == "v1alpha1":
        del obj["spec"]
        obj |= {"destination": spec["destination"], "sources": spec["sources"], "specs": spec["rules"]}
    return obj | {"apiVersion": f"access.smi-spec.io/{version}"}


def _subject(name, namespace=""):
    found = {"kind": "ServiceAccount", "name": name}
    return found | {"namespace": namespace} if namespace else found


SOURCES = (*[("a",)] * 6, ("b",), ("b",), ("a", "blue"), ("gateway", "headgate-system"), ("gone",))
RULES = st.sampled_from(
    (
        *({"kind": "HTTPRouteGroup", "name": name} for name in GROUPS * 3),
        *({"kind": "HTTPRouteGroup", "name": name, "matches": ["m0"]} for name in GROUPS),
        {"kind": "HTTPRouteGroup", "name": "g1", "matches": ["m1", "gone"]},
        *({"kind": "TCPRoute", "name": name} for name in TCP_ROUTES * 3),
        {"kind": "UDPRoute", "name": "u"},
    )
)


def _group(draw, name):
    matches = [_match(draw, f"m{index}") for index in range(draw(st.integers(1, 2)))]
    if draw(SELDOM):
        obj = named("HTTPRouteGroup", "default", name, matches=matches)
        return obj | {"apiVersion": f"specs.smi-spec.io/{draw(st.sampled_from(('v1alpha1', 'v1alpha2')))}"}
    return named("HTTPRouteGroup", "default", name, spec={"matches": matches})


def _match(draw, name):
    """Return a match with few conditions, so that some calls match it."""
    found, parts = {"name": name}, draw(PARTS)
    if "path" in parts:
        found["pathRegex"] = draw(PATTERNS)
    if "methods" in parts:
        found["methods"] = draw(st.lists(st.sampled_from(METHODS), min_size=1, max_size=2, unique=True))
    if "headers" in parts:
        found["headers"] = {item: draw(st.sampled_from(ALL_TEXTS[item])) for item in draw(HEADER_NAMES)}
    return found


def _tcp_route(draw, name):
    obj = named("TCPRoute", "default", name)
    if draw(SELDOM):
        return obj | {"apiVersion": f"specs.smi-spec.io/{draw(st.sampled_from(('v1alpha1', 'v1alpha3')))}"}
    ports = draw(st.lists(st.sampled_from((8080, 9090, 80, 9000, 8080, 80, 5432)), max_size=3, unique=True))
    return obj | {"spec": {"matches": {"ports": ports}}}


@st.composite
def scenarios(draw):
    """Return an AccessWorld, and calls to its pod."""
    world = draw(access_worlds())
    return world, draw(st.lists(calls(world), min_size=10, max_size=20, unique=True))


@st.composite
def calls(draw, world):
    """Return a call; most calls are those of the mesh's own clients, with random paths."""
    meant, port = draw(st.sampled_from(world.leads))
    if draw(SELDOM):
        meant, port = draw(MEANT), draw(st.sampled_from(sorted(POD_PORTS)))
    caller = draw(st.sampled_from(CALLER_LABELS))
    target = draw(st.sampled_from(BEGINNINGS)) + "".join(draw(ENDINGS))
    version = draw(st.sampled_from(("1.1", "1.1", "2", "1.0")))
    headers = draw(SAME_NAME if draw(st.integers(0, 3)) == 3 else ANY_NAME if version == "2" else ANY_OF_HTTP1)
    if version == "2" and not target.startswith("/"):
        target = f"/{target}"  # without the slash, a call takes a second over HTTP/2; see test_access_regressions
    if draw(ODD):
        headers = [*headers, *draw(odd_headers.lists(http1=version != "2"))]
    return Call(
        port=port,
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


ODD = st.integers(0, 3).map(lambda drawn: drawn == 3)
ANY_NAME = st.lists(st.sampled_from(HEADERS), max_size=3)
ANY_OF_HTTP1 = st.lists(st.sampled_from(HEADERS + OF_HTTP1), max_size=3)
SAME_NAME = st.sampled_from(("x-a", "cookie")).flatmap(
    lambda name: st.lists(
        st.sampled_from([item for item in HEADERS if item[0].lower() == name]), min_size=1, max_size=3
    )
)
OFFERS_MESH_ALPN = st.sampled_from((True, True, False))
ENDINGS = st.one_of(st.just([]), st.lists(st.sampled_from(ENDS), max_size=2))
CALLER_LABELS = (*"aaaaaaaaaaaaaaaaaabbb", *CALLERS, PLAINTEXT, PLAINTEXT, *STRANGERS)
MEANT = st.one_of(st.none(), st.tuples(st.sampled_from((*SERVICES, "gone")), st.sampled_from(SERVICE_PORTS)))
