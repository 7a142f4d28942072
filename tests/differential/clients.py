"""Random requests of clients that use HTTP in unusual ways, and headless Services whose pods have names.

A drawn request varies one of the ordinary random requests: HTTP/1.0, other methods, offers to upgrade, trailers, a tunnel
through the HTTP proxy, or the name of a pod. Some servers send early hints, and some close idle connections.
"""

from hypothesis import strategies as st
from tests.differential import edge
from tests.differential.backends import CLOSES, HINTS
from tests.differential.lab import MEMBERS, Objects
from tests.differential.worlds import HOSTS, MOSTLY, PLACES, PORTS, SELDOM, Sent, requests
from tests.make.objects import Object

METHODS = ("LIST", "QUERY", "VERSION-CONTROL", "PATCH", "TRACE", "OPTIONS", "get", "M-SEARCH")
QUERY_CONTENT = ("content-type", "application/sql")
OFFERS = (
    (("Connection", "Upgrade"), ("Upgrade", "TLS/1.2")),
    (("Connection", "Upgrade"), ("Upgrade", "h2c, TLS/1.2")),
    (("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAA")),
    (("Connection", "upgrade"), ("Upgrade", "websocket")),
    (("Connection", "upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")),
    (("Connection", "Upgrade"), ("Upgrade", "TLS/1.3, WebSocket")),
)
TRAILERS = ((), (("x-sum", "1"),), (("x-sum", "1"), ("X-Other", "a b")))


@st.composite
def unusual_requests(draw: st.DrawFn) -> Sent:
    """Return a request as `worlds.requests` does, or as clients do that use HTTP in an unusual way."""
    sent = draw(requests())
    change = draw(st.sampled_from(CHANGES))
    return change(draw, sent) if change else sent


def _with_method(draw: st.DrawFn, sent: Sent) -> Sent:
    method = draw(st.sampled_from(METHODS))
    content = (QUERY_CONTENT,) if method == "QUERY" and draw(MOSTLY) else ()
    return sent._replace(method=method, headers=(*sent.headers, *content))


def _with_connect(draw: st.DrawFn, sent: Sent) -> Sent:
    """Return a CONNECT to a place that opens no tunnels; the HTTP proxy does."""
    target = draw(st.sampled_from(("a.default:8080", "gone:1")))
    return sent if sent.via == "proxy" else sent._replace(method="CONNECT", target=target)


def _over_http_1_0(draw: st.DrawFn, sent: Sent) -> Sent:
    is_named = sent.via == "proxy" or draw(MOSTLY)
    hints = ((HINTS, "1"),) if draw(SELDOM) else ()
    authority = sent.authority if is_named else ""
    return sent._replace(version="1.0", authority=authority, headers=(*sent.headers, *hints))


def _with_hints(_draw: st.DrawFn, sent: Sent) -> Sent:
    return sent._replace(headers=(*sent.headers, (HINTS, "1")))


def _with_idle_close(_draw: st.DrawFn, sent: Sent) -> Sent:
    """Return a request whose server closes the connection when it is idle; the next request is sent again if it meets this."""
    return sent._replace(method="GET", headers=(*sent.headers, (CLOSES, "1")))


def _with_offer(draw: st.DrawFn, sent: Sent) -> Sent:
    return sent._replace(headers=(*sent.headers, *draw(st.sampled_from(OFFERS))))


def _with_trailers(draw: st.DrawFn, sent: Sent) -> Sent:
    return sent._replace(trailers=draw(st.sampled_from(TRAILERS)), chunked=True)


def _through_tunnel(draw: st.DrawFn, sent: Sent) -> Sent:
    """Return the request in a tunnel, in which its host is arbitrary."""
    namespace, name = draw(st.sampled_from(PLACES))
    number = draw(st.sampled_from((*PORTS, *(edge.NAMED,) * 4)))
    spellings = (
        f"{name}.{namespace}:{number}",
        f"{name.upper()}.{namespace}.svc:{number}",
        f"gone.{namespace}:{number}",
    )
    host, tunnel = draw(st.sampled_from(HOSTS)), draw(st.sampled_from(spellings))
    server_name = draw(st.sampled_from(edge.OF_NAMED)) if number == edge.NAMED else ""
    return sent._replace(via="tunnel", authority=host, tunnel=tunnel, server_name=server_name, client="")


def _to_pod(draw: st.DrawFn, sent: Sent) -> Sent:
    """Return the request to the name of a pod, directly or in a tunnel."""
    namespace, name = draw(st.sampled_from(PLACES))
    member = draw(st.integers(0, MEMBERS - 1))
    ending = draw(st.sampled_from(("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")))
    called = f"h{member}.{name}{ending}:member-{member}"
    if draw(st.booleans()):
        return sent._replace(via="tunnel", authority=draw(st.sampled_from(HOSTS)), tunnel=called, server_name="")
    return sent._replace(via="proxy", authority=called, server_name="")


CHANGES = (
    *(None, None, None),
    *(_through_tunnel, _through_tunnel, _to_pod),
    *(_with_method, _with_connect, _over_http_1_0, _with_offer, _with_trailers, _with_hints, _with_idle_close),
)


@st.composite
def with_headless(draw: st.DrawFn, worlds: st.SearchStrategy[Objects]) -> Objects:
    """Return a random world in which some Services are headless and their pods have names."""
    world = draw(worlds)
    headless = {key for key in world if key.kind == "Service" and draw(SELDOM)}
    names = {(key.namespace, key.name) for key in headless}
    changed = dict(world)
    for key, written in world.items():
        if key in headless:
            changed[key] = written | {"spec": written["spec"] | {"clusterIP": "None"}}
        elif key.kind == "EndpointSlice" and (key.namespace, key.name.rpartition("-")[0]) in names:
            changed[key] = _named(written, key.name.rpartition("-")[2])
    return changed


def _named(written: Object, member: str) -> Object:
    return written | {"endpoints": [place | {"hostname": f"h{member}"} for place in written["endpoints"]]}
