"""Sanitizing of requests; each case was observed with Envoy 1.40."""

import pytest

from headgate.model.requests import Request
from headgate.model.sanitizing import Downstream, sanitize

MESH, EDGE = Downstream(), Downstream(edge=True)
ADDED = [("x-forwarded-proto", "http")]


def sanitized(*lines, downstream=MESH, **more):
    """Return the headers after sanitizing; `lines` has headers such as `name: value`."""
    headers = tuple((name, value) for name, _, value in (line.partition(":") for line in lines))
    return sanitize(Request(authority="a", headers=headers, **more), downstream)


def left(*lines, **more):
    found = sanitized(*lines, **more)
    assert not found.status, found
    return [f"{name}:{value}" for name, value in found.request.headers if (name, value) not in ADDED]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (["Connection: x-a", "x-a: 1", "x-b: 2"], ["x-b:2"]),
        (["connection: X-A , close", "x-a: 1", "X-A: 2"], []),
        (["connection: x-a", "connection: x-b", "x-a: 1", "x-b: 2"], []),
        (["connection: connection, x-a", "x-a: 1"], []),
        (["connection: cookie", "cookie: a=1"], []),
        (["connection: http2-settings", "http2-settings: A"], ["http2-settings:A"]),
        (
            ["connection: upgrade, x-a", "upgrade: websocket", "x-a: 1"],
            ["connection:upgrade, x-a", "upgrade:websocket", "x-a:1"],
        ),
        (["connection: UPGRADE", "upgrade: WebSocket"], ["connection:UPGRADE", "upgrade:WebSocket"]),
        (["connection: upgrade, http2-settings, x-a", "upgrade: h2c", "http2-settings: A", "x-a: 1"], []),
        (["upgrade: websocket", "x-a: 1"], ["x-a:1"]),
        (["connection: upgrade", "x-a: 1"], ["x-a:1"]),
        (["keep-alive: 5", "proxy-connection: keep-alive", "transfer-encoding: chunked"], []),
        (["proxy-authorization: x", "trailer: y"], ["proxy-authorization:x", "trailer:y"]),
    ],
)
def test_hop_by_hop_headers_are_removed(sent, kept):
    assert left(*sent) == kept


@pytest.mark.parametrize(
    ("value", "kept"),
    [("trailers", "trailers"), ("gzip, trailers", "trailers"), ("gzip", None), ("Trailers", None), ("", "")],
)
def test_te_is_reduced_to_trailers(value, kept):
    assert left(f"te: {value}") == ([] if kept is None else [f"te:{kept}"])


def test_te_keeps_only_trailers_if_connection_names_te():
    assert left("connection: te", "te: gzip, Trailers") == ["te:trailers"]
    assert left("connection: te", "te: gzip") == []


@pytest.mark.parametrize(
    "value",
    ["http://a/b", "https://a:1/?b", "android-app://com.x/", "/a?b", "a/b", "", "//", "http://a/b,http://a/b"],
)
def test_a_valid_referer_is_kept(value):
    assert left(f"referer: {value}") == [f"referer:{value}"]


@pytest.mark.parametrize(
    "value",
    [
        "a b",
        "http://a#b",
        "#a",
        "http://u@a/",
        "http://x:99999/",
        "http://x:/",
        "mailto:x",
        "http://a_b/",
        "file:///a",
        "é",
    ],
)
def test_an_invalid_referer_is_removed(value):
    assert left(f"referer: {value}") == []


def test_headers_that_only_proxies_may_set_are_removed_in_every_spelling():
    reserved = ["x-envoy-retry-on: 5xx", "x-envoy-other: 1", "x_envoy_original_path: /a", "x-headgate-draw: 1"]
    reserved += ["x-forwarded-client_cert: URI=a", "X-Envoy-Internal: true"]
    assert left(*reserved, "x-envoyed: 1", "envoy-x: 1") == ["x-envoyed:1", "envoy-x:1"]


def test_a_gateway_removes_more_headers_of_clients():
    sent = [
        "x-forwarded-proto: https",
        "x_forwarded-proto: https",
        "x_forwarded_for: 1.2.3.4",
        "x-forwarded-for: 1.2.3.4",
    ]
    assert left(*sent) == [line.replace(": ", ":") for line in sent]
    assert left(*sent, downstream=EDGE) == ["x-forwarded-for:1.2.3.4"]
    https = sanitized(downstream=Downstream(edge=True, secure=True)).request.headers
    assert https == (("x-forwarded-proto", "https"),)


def test_repeated_well_known_headers_are_joined():
    sent = ["accept: a", "accept:", "accept: b", "x-a: a", "x-a:", "cookie: a=1", "cookie: b=2"]
    assert left(*sent) == ["accept:a,b", "x-a:a", "x-a:", "cookie:a=1", "cookie:b=2"]
    assert left("cookie:", "cookie:a=1", "cookie:b=2", version="2") == ["cookie:a=1; b=2"]


def test_the_sidecar_replaces_the_certificate_header():
    assert left("x-forwarded-client-cert: URI=a") == []
    found = left("x-forwarded-client-cert: URI=a", downstream=Downstream(certificate="URI=b"))
    assert found == ["x-forwarded-client-cert:URI=b"]


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (400, ["connection: x-forwarded-for"]),
        (400, ["connection: :path"]),
        (400, ["connection: Host"]),
        (400, ["connection: a,b,c,d,e,f,g,h,i,j"]),
        (400, ["connection: te", f"te: {'g' * 256}"]),
        (400, ["bad name: 1"]),
        (400, ["x-a: \x01"]),
        (400, ["content-length: 0", "content-length: 0"]),
        (400, ["content-length: x"]),
        (400, ["transfer-encoding: chunked", "content-length: 0"]),
        (501, ["transfer-encoding: gzip"]),
        (431, [f"x-a: {'v' * 1024 * 1024}"]),
        (431, [f"x-{number}: 1" for number in range(1000)]),
    ],
)
def test_invalid_headers_are_refused(status, sent):
    assert sanitized(*sent).status == status


@pytest.mark.parametrize(
    ("protocols", "kept"),
    [
        ("TLS/1.2", None),
        ("TLS/1.3, TLS/1.2", None),
        ("h2c, TLS/1.2", None),
        ("h2c", None),
        ("", None),
        ("websockets", None),
        ("WebSocket", "WebSocket"),
        ("other, WebSocket", "WebSocket"),
    ],
)
def test_only_an_upgrade_to_websocket_is_kept(protocols, kept):
    expected = [] if kept is None else ["connection:upgrade", f"upgrade:{kept}"]
    assert sorted(left("connection: upgrade", f"upgrade: {protocols}")) == expected


def test_an_empty_x_forwarded_proto_is_replaced():
    assert sanitized("x-forwarded-proto:").request.headers == tuple(ADDED)
    assert left("x-forwarded-proto: https,http") == ["x-forwarded-proto:https,http"]


def test_an_expectation_is_forwarded():
    assert left("expect: 100-continue") == ["expect:100-continue"]


def test_only_http_1_0_needs_no_host():
    hosts = [sanitize(Request(version=version), MESH).request.authority for version in ("1.0", "1.1")]
    assert hosts == ["localhost", ""]


def test_requests_up_to_the_size_limit_are_accepted():
    assert sanitized(*(f"x-{number}:1" for number in range(999))).status == 0
    shortest = "GET / HTTP/1.1\r\nhost: a\r\nx-a: \r\n\r\n"
    assert sanitized(f"x-a:{'v' * (1024 * 1024 - len(shortest))}").status == 0
    assert sanitized(f"x-a:{'v' * (1024 * 1024 - len(shortest) + 1)}").status == 431


@pytest.mark.parametrize("target", ["", "a", "*", "/a b", "/é", "/a#b", "ftp://a/", "http:///a", "http://a:99999/"])
def test_an_invalid_target_is_refused(target):
    assert sanitized(target=target).status == 400


@pytest.mark.parametrize(
    ("target", "authority", "path"),
    [
        ("http://b/c", "b", "/c"),
        ("HTTPS://u:p@b:80?q", "b:80", "?q"),
        ("http://b", "b", "/"),
        ("//b/c", "a", "//b/c"),
        ("/a\\b%", "a", "/a\\b%"),
    ],
)
def test_an_absolute_url_sets_the_host(target, authority, path):
    found = sanitized(target=target).request
    assert (found.authority, found.target) == (authority, path)


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_every_method_is_accepted(version):
    methods = ("PURGE", "get", "LIST", "VERSION-CONTROL", "G(T", "CONNECT")
    assert [sanitized(method=name, version=version).status for name in methods] == [0, 0, 0, 0, 400, 400]


def test_a_query_must_have_a_content_type():
    assert sanitized(method="QUERY").status == 400
    assert sanitized("content-type: a/b", method="QUERY").status == 0


@pytest.mark.parametrize("line", ["connection: x-a", "te: gzip", "upgrade: websocket", "transfer-encoding: chunked"])
def test_connection_headers_are_refused_in_http2(line):
    assert sanitized(line, version="2").status == 400


def test_each_changed_header_has_a_reason():
    assert sanitized("connection: x-a", "x-a: 1").changes == (
        "x-a is removed: the header Connection names it",
        "connection is removed: it is for one connection only",
    )
