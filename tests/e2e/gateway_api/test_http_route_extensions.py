"""HTTPRoutes of Gateways: what the conformance suite tests for the extended features that headgate supports."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from tests.draws import fits
from tests.e2e.gateway_api.objects import (
    CHANGED,
    MODIFIED,
    PORT,
    RECEIVED,
    SENT,
    change,
    edge_gateway,
    edge_route,
    fields,
    path,
    path_modifier,
    redirect,
    rule_of,
    web_listener,
)
from tests.e2e.gateway_api.site import Site
from tests.protocols import upgrade
from tests.waiting import until
from tests.wire import Address, Answer


@pytest.mark.conformance("HTTPRouteListenerPortMatching")
def test_the_port_of_a_parent_reference_selects_listeners(site: Site) -> None:
    ports = {"one": PORT, "two": PORT + 1, "three": PORT + 2, "four": PORT + 2}
    hostnames = {"three": "foo.com", "four": "other.com"}
    site.apply(
        edge_gateway(*(web_listener(name, hostnames.get(name, ""), port=port) for name, port in ports.items())),
        edge_route("v1", rule_of("v1"), parent={"port": PORT}),
        edge_route("v2", rule_of("v2"), parent={"port": PORT + 1}),
        edge_route("v3", rule_of("v3"), parent={"port": PORT + 2, "sectionName": "three"}),
    )
    host = site.accepted("v1", "v2", "v3").host
    site.wait_for_attached({"one": 1, "two": 1, "three": 1, "four": 0})
    expected = {(PORT, "foo.com"): "v1", (PORT + 1, "foo.com"): "v2", (PORT + 1, "bar.com"): "v2"}
    expected |= {(PORT + 2, "foo.com"): "v3", (PORT + 2, "bar.com"): "404"}
    found = {pair: site.ask(Address(host, pair[0]), f"{pair[1]}:{pair[0]}/").answered_by for pair in expected}
    assert found == expected


@pytest.mark.conformance(
    "HTTPRouteInvalidParentRefNotMatchingListenerPort", "HTTPRouteInvalidParentRefSectionNameNotMatchingPort"
)
@pytest.mark.parametrize("parent", [{"port": PORT + 5}, {"port": PORT + 1, "sectionName": "http"}])
def test_a_route_for_a_port_without_listener_is_not_accepted(site: Site, parent: Mapping[str, Any]) -> None:
    site.apply(
        edge_gateway(web_listener(), web_listener("second", port=PORT + 1)),
        edge_route("app", rule_of("v1"), parent=parent),
    )
    site.wait_for_parent("httproute/app", Accepted="NoMatchingParent", ResolvedRefs="ResolvedRefs")
    site.wait_for_attached({"http": 0, "second": 0})


@pytest.mark.conformance("HTTPRouteMethodMatching")
def test_methods(site: Site) -> None:
    rules = (
        rule_of("v1", matches=[{"method": "POST"}]),
        rule_of("v2", matches=[{"method": "GET"}]),
        rule_of("v3", matches=[path("/path", method="GET"), {"method": "PUT", "headers": fields(version="four")}]),
    )
    site.apply(edge_gateway(), edge_route("app", *rules))
    address = site.accepted("app")
    expected = {("POST", "/"): "v1", ("GET", "/"): "v2", ("DELETE", "/"): "404", ("GET", "/path"): "v3"}
    found = {pair: site.ask(address, pair[1], method=pair[0]).answered_by for pair in expected}
    assert found == expected
    assert site.ask(address, "/", method="PUT", version="four").answered_by == "v3"
    assert site.ask(address, "/", method="PUT").status == 404


@pytest.mark.conformance("HTTPRouteQueryParamMatching")
def test_query_parameters(site: Site) -> None:
    def matches(*wanted: Mapping[str, str]) -> list[Mapping[str, Any]]:
        return [{"queryParams": fields(**parameters)} for parameters in wanted]

    rules = (
        rule_of("v1", matches=matches({"animal": "whale"})),
        rule_of("v2", matches=matches({"animal": "dolphin"})),
        rule_of("v3", matches=matches({"animal": "dolphin", "color": "blue"}, {"ANIMAL": "Whale"})),
        rule_of("v2", matches=[{"headers": fields(version="one"), "queryParams": fields(animal="whale")}]),
        rule_of("v3", matches=[path("/path", queryParams=fields(animal="shark"))]),
    )
    site.apply(edge_gateway(), edge_route("app", *rules))
    address = site.accepted("app")
    expected = {
        "/?animal=whale": "v1",
        "/?animal=dolphin": "v2",
        "/?animal=dolphin&color=blue": "v3",
        "/?ANIMAL=Whale": "v3",
        "/?animal=whale&otherparam=irrelevant": "v1",
        "/?animal=dolphin&color=yellow": "v2",
        "/?color=blue": "404",
        "/?animal=dog": "404",
        "/?animal=whaledolphin": "404",
        "/": "404",
        "/path?animal=whale": "v1",
        "/path?animal=shark": "v3",
        "/?animal=shark": "404",
    }
    assert site.answers(address, *expected) == expected
    assert site.ask(address, "/?animal=whale", version="one").answered_by == "v2"


@pytest.mark.conformance("HTTPRouteResponseHeaderModifier")
def test_changes_of_response_headers(site: Site) -> None:
    def changed(prefix: str, **modifier: Any) -> Mapping[str, Any]:
        return rule_of("v1", matches=[path(prefix)], filters=[change("ResponseHeaderModifier", **modifier)])

    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            changed("/set", set=fields(X_Header_Set="set")),
            changed("/add", add=fields(X_Header_Add="added", X_Header_Append="appended")),
            changed("/remove", remove=["X-Header-Remove"]),
            changed(
                "/multiple",
                set=fields(X_Header_Set="set"),
                add=fields(X_Header_Add="added"),
                remove=["x-header-remove"],
            ),
        ),
    )
    address = site.accepted("app")

    def received(target: str, **headers: str) -> Mapping[str, str]:
        site.backends["v1"].headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return {name: value for name, value in site.ask(address, target).headers.items() if name.startswith(CHANGED)}

    assert received("/set") == {"x-header-set": "set"}
    assert received("/set", X_Header_Set="old", X_Header_Other="1") == {"x-header-set": "set", "x-header-other": "1"}
    assert received("/add", x_header_append="old") == {"x-header-add": "added", "x-header-append": "old,appended"}
    assert received("/remove", x_header_remove="old", x_header_other="1") == {"x-header-other": "1"}
    assert received("/multiple", X_Header_Set="old", X_Header_Remove="old") == {
        "x-header-set": "set",
        "x-header-add": "added",
    }


@pytest.mark.conformance("HTTPRouteRequestHeaderModifierBackendWeights")
def test_each_backend_has_its_own_request_headers(site: Site) -> None:
    backends = [
        {"name": name, "port": 8080, "filters": [change("RequestHeaderModifier", set=fields(backend=name))]}
        for name in ("v1", "v2")
    ]
    site.apply(edge_gateway(), edge_route("app", {"backendRefs": backends}))
    address = site.accepted("app")
    for _ in range(100):
        name = site.ask(address, "/").answered_by
        assert site.backends[name].last.headers["backend"] == name
    assert {name for name, backend in site.backends.items() if backend.requests} == {"v1", "v2"}


@pytest.mark.conformance("HTTPRouteBackendRequestHeaderModifier")
def test_changes_of_request_headers_for_one_backend(site: Site) -> None:
    backend = {"name": "v1", "port": 8080, "filters": [MODIFIED]}
    site.apply(edge_gateway(), edge_route("app", {"backendRefs": [backend]}))
    assert site.ask(site.accepted("app"), "/", **SENT).answered_by == "v1"
    assert site.changed_headers() == RECEIVED


def test_backends_of_one_rule_have_path_rewrites_and_redirects_of_their_own(site: Site) -> None:
    """Shares are exact to a millionth, and a backend's path replaces that of the rule."""

    def rewrite(kind: str, value: str) -> Mapping[str, Any]:
        return {"type": "URLRewrite", "urlRewrite": {"path": path_modifier(kind, value)}}

    backends = [
        {"name": "v1", "port": 8080, "weight": 4, "filters": [rewrite("ReplaceFullPath", "/full")]},
        {"name": "v2", "port": 8080, "weight": 3, "filters": [change("RequestHeaderModifier", set=fields(side="v2"))]},
        {
            "name": "v3",
            "port": 8080,
            "filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "moved.example"}}],
        },
    ]
    rule = {"matches": [path("/old")], "filters": [rewrite("ReplacePrefixMatch", "/new")], "backendRefs": backends}
    site.apply(edge_gateway(), edge_route("app", rule))
    address, total = site.accepted("app"), 480
    answers = [site.ask(address, "/old/item?q=1") for _ in range(total)]
    targets = Counter((answer.answered_by, answer.headers.get("location", "")) for answer in answers)
    shares = {("v1", ""): 4 / 8, ("v2", ""): 3 / 8, ("302", f"http://moved.example:{PORT}/old/item?q=1"): 1 / 8}
    assert set(targets) == set(shares)
    assert all(fits(targets[answer], share, of=total) for answer, share in shares.items()), targets
    assert {name: site.backends[name].last.target for name in ("v1", "v2")} == {
        "v1": "/full?q=1",
        "v2": "/new/item?q=1",
    }
    assert site.backends["v2"].last.headers["side"] == "v2"
    assert not site.backends["v3"].requests


def location(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.headers.get("location", "")


@pytest.mark.conformance("HTTPRouteRedirectPath")
def test_redirects_of_the_path(site: Site) -> None:
    prefix, full = path_modifier("ReplacePrefixMatch", "/new"), path_modifier("ReplaceFullPath", "/full-new")
    rules = (
        redirect("/old", path=prefix),
        redirect("/full", path=full),
        redirect("/host", path=prefix, hostname="example.org"),
        redirect("/status", path=prefix, statusCode=301),
        redirect("/full-host", path=full, hostname="example.org"),
        redirect("/full-status", path=full, statusCode=301),
    )
    site.apply(edge_gateway(), edge_route("app", *rules))
    address = site.accepted("app")
    expected = {
        "/old/lemon": (302, "/new/lemon"),
        "/full/path/original": (302, "/full-new"),
        "/host": (302, "http://example.org:18080/new"),
        "/status": (301, "/new"),
        "/full-host": (302, "http://example.org:18080/full-new"),
        "/full-status": (301, "/full-new"),
    }
    for target, (status, wanted) in expected.items():
        same_host = wanted if wanted.startswith("http") else f"http://app.example:18080{wanted}"
        assert location(site.ask(address, f"app.example:18080{target}")) == (status, same_host), target


@pytest.mark.conformance("HTTPRouteRedirectPort", "HTTPRouteRedirectPortAndScheme", "HTTPRouteRedirectScheme")
def test_redirects_of_port_and_scheme(site: Site) -> None:
    """A redirect without a port uses the default port of its scheme; without a scheme, it uses the listener's port.

    Envoy can omit a default port only if the redirect or the route names the host, so this route has a host.
    """
    contents: dict[str, tuple[Mapping[str, Any], int, str]] = {
        "/port": ({"port": 8083}, 302, "http://app.example:8083"),
        "/port-host": ({"port": 8083, "hostname": "example.org"}, 302, "http://example.org:8083"),
        "/port-status": ({"port": 8083, "statusCode": 301}, 301, "http://app.example:8083"),
        "/port-80": ({"port": 80}, 302, "http://app.example"),
        "/nothing": ({"hostname": "example.org"}, 302, "http://example.org:18080"),
        "/scheme": ({"scheme": "https"}, 302, "https://app.example"),
        "/scheme-host": ({"scheme": "https", "hostname": "example.org"}, 302, "https://example.org"),
        "/scheme-status": ({"scheme": "https", "statusCode": 301}, 301, "https://app.example"),
        "/scheme-443": ({"scheme": "https", "port": 443}, 302, "https://app.example"),
        "/scheme-8443": ({"scheme": "https", "port": 8443}, 302, "https://app.example:8443"),
    }
    rules = [redirect(target, **content) for target, (content, *_) in contents.items()]
    site.apply(edge_gateway(), edge_route("app", *rules, hosts=["app.example"]))
    address = site.accepted("app")
    for target, (_, status, origin) in contents.items():
        answer = site.ask(address, f"app.example:18080{target}")
        assert location(answer) == (status, f"{origin}{target}"), target


@pytest.mark.conformance("HTTPRoute303Redirect", "HTTPRoute307Redirect", "HTTPRoute308Redirect")
@pytest.mark.parametrize("status", [303, 307, 308])
def test_redirects_with_further_statuses(site: Site, status: int) -> None:
    site.apply(edge_gateway(), edge_route("app", redirect("/see", statusCode=status, hostname="example.org")))
    assert location(site.ask(site.accepted("app"), "/see")) == (status, "http://example.org:18080/see")


@pytest.mark.conformance("HTTPRouteRewriteHost")
def test_rewrites_of_the_host(site: Site) -> None:
    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            rule_of("v1", matches=[path("/one")], filters=[change("URLRewrite", hostname="one.example.org")]),
            rule_of("v1", matches=[path("/kept")]),
            rule_of(
                "v1", matches=[path("/both")], filters=[change("URLRewrite", hostname="test.example.org"), MODIFIED]
            ),
        ),
    )
    address = site.accepted("app")
    for target, host in (("/one", "one.example.org"), ("/kept", "rewrite.example"), ("/both", "test.example.org")):
        assert site.ask(address, f"rewrite.example{target}", **SENT).answered_by == "v1"
        assert (site.backends["v1"].last.target, site.backends["v1"].last.headers["host"]) == (target, host)
    assert site.changed_headers() == RECEIVED


@pytest.mark.conformance("HTTPRouteRewritePath")
def test_rewrites_of_the_path(site: Site) -> None:
    def rewrite(prefix: str, kind: str, value: str, *more: Mapping[str, Any]) -> Mapping[str, Any]:
        return rule_of(
            "v1", matches=[path(prefix)], filters=[change("URLRewrite", path=path_modifier(kind, value)), *more]
        )

    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            rewrite("/prefix/one", "ReplacePrefixMatch", "/one"),
            rewrite("/strip", "ReplacePrefixMatch", "/"),
            rewrite("/full/one", "ReplaceFullPath", "/one"),
            rewrite("/full/both", "ReplaceFullPath", "/test", MODIFIED),
            rewrite("/prefix/both", "ReplacePrefixMatch", "/prefix", MODIFIED),
        ),
    )
    address = site.accepted("app")
    expected = {
        "/prefix/one/two": "/one/two",
        "/strip/three": "/three",
        "/strip": "/",
        "/full/one/two": "/one",
        "/full/both/test": "/test",
        "/prefix/both/one": "/prefix/one",
    }
    for target, received in expected.items():
        assert site.ask(address, target, **SENT).answered_by == "v1"
        assert site.backends["v1"].last.target == received
        if "both" in target:
            assert site.changed_headers() == RECEIVED


@pytest.mark.conformance("HTTPRouteTimeoutRequest", "HTTPRouteTimeoutBackendRequest")
@pytest.mark.parametrize("field", ["request", "backendRequest"])
def test_a_late_response_becomes_504(site: Site, field: str) -> None:
    rules = [
        rule_of(name, matches=[path(f"/{name}")], timeouts={field: limit})
        for name, limit in (("v1", "20s"), ("v2", "100ms"), ("v3", "0s"))
    ]
    site.apply(edge_gateway(), edge_route("app", *rules))
    address = site.accepted("app")
    site.backends["v2"].hangs = True
    assert site.answers(address, "/v1", "/v2", "/v3") == {"/v1": "v1", "/v2": "504", "/v3": "v3"}


@pytest.mark.conformance("HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket")
def test_backends_with_http2_and_websocket(site: Site) -> None:
    site.start("h2c", "h2c")
    site.start("ws", "ws")
    site.apply(edge_gateway(), edge_route("app", rule_of("h2c"), rule_of("ws", matches=[path("/chat")])))
    address = site.accepted("app")
    assert site.ask(address, "/").answered_by == "h2c"
    assert site.host.network.run(upgrade(address, "\x00\x01 Websocket")) == ["101", "ws", "\x00\x01 Websocket"]


@pytest.mark.conformance("HTTPRouteRequestMirror", "HTTPRouteRequestMultipleMirrors")
def test_each_mirror_gets_a_copy_of_every_request(site: Site) -> None:
    mirrors = [change("RequestMirror", backendRef={"name": name, "port": 8080}) for name in ("v2", "v3")]
    site.apply(
        edge_gateway(),
        edge_route("app", rule_of("v1", filters=mirrors), rule_of("v1", matches=[path("/one")], filters=mirrors[:1])),
    )
    address = site.accepted("app")
    for target in ("/", "/one"):
        assert Counter(site.ask(address, f"any{target}").answered_by for _ in range(20)) == {"v1": 20}
    until(lambda: site.backends["v2"].requests == 40 and site.backends["v3"].requests == 20, "all copies")
    assert site.backends["v3"].last.target == "/"


@pytest.mark.conformance("HTTPRouteRequestPercentageMirror")
@pytest.mark.parametrize(
    ("proportion", "share"),
    [({"percent": 20}, 0.2), ({"fraction": {"numerator": 7, "denominator": 20}}, 0.35)],
    ids=str,
)
def test_a_mirror_gets_its_share_of_the_requests(site: Site, proportion: Mapping[str, Any], share: float) -> None:
    mirror = change("RequestMirror", backendRef={"name": "v2", "port": 8080}, **proportion)
    site.apply(edge_gateway(), edge_route("app", rule_of("v1", filters=[mirror])))
    address = site.accepted("app")
    assert Counter(site.ask(address, "any/").answered_by for _ in range(1000)) == {"v1": 1000}
    copies = site.backends["v2"]
    until(lambda: fits(copies.requests, share, of=1000), "the copies")
    site.host.settle()  # meanwhile the last copies arrive
    assert fits(copies.requests, share, of=1000)


@pytest.mark.conformance("HTTPRouteNamedRule")
def test_rules_with_and_without_a_name(site: Site) -> None:
    named = rule_of("v1", matches=[path("/named")], name="rule-1")
    site.apply(edge_gateway(), edge_route("app", named, rule_of("v2", matches=[path("/unnamed")])))
    expected = {"/named": "v1", "/unnamed": "v2"}
    assert site.answers(site.accepted("app"), *expected) == expected
    site.wait_for_attached({"http": 1})
