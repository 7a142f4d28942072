"""Checks and types of the Gateway API's routes (requirements 2.4)."""

from typing import Any

import pytest
from tests.decoding import decode, validate
from tests.make.objects import GATEWAY_API, Object, route, rule

from headgate.resources.gateway_api.grpc_route import GRPCRoute
from headgate.resources.gateway_api.http_route import HTTPRoute
from headgate.resources.gateway_api.routes import Fraction
from headgate.resources.gateway_api.tcp_route import GatewayTCPRoute
from headgate.resources.gateway_api.tls_route import TLSRoute
from headgate.resources.gateway_api.udp_route import GatewayUDPRoute

GROUP = "gateway.networking.k8s.io"
RULE = "spec.rules[0]"
FILTER = f"{RULE}.filters[0]"
SESSION = f"{RULE}.sessionPersistence"
MATCH = f"{RULE}.matches[0]"


def edge_route(*rules: Any, version: str = "v1", **more: Any) -> Object:
    return route("web", *rules, parents=[{"name": "edge"}], version=f"{GATEWAY_API}/{version}", **more)


def web_rule(*filters: Any, **fields: Any) -> Object:
    return rule({"web": 1}, port=80, filters=list(filters), **fields)


def persistent(**fields: Any) -> Object:
    return edge_route(web_rule(sessionPersistence=fields))


def match(**fields: Any) -> dict[str, Any]:
    return edge_route(web_rule(matches=[fields]))


def path(value: Any, type: str = "PathPrefix") -> dict[str, Any]:
    return match(path={"type": type, "value": value})


def mirror(**fields: Any) -> dict[str, Any]:
    return {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "copy", "port": 80}, **fields}}


def filtered(*filters: Any) -> dict[str, Any]:
    return edge_route(web_rule(*filters))


def backend(**fields: Any) -> dict[str, Any]:
    return edge_route({"backendRefs": [{"name": "web", "port": 80, **fields}]})


def parents(*refs: dict[str, Any]) -> dict[str, Any]:
    return edge_route(web_rule(), parentRefs=[{"name": "edge", **ref} for ref in refs])


def timeouts(**fields: str) -> dict[str, Any]:
    return edge_route(web_rule(timeouts=fields))


def grpc(**method: Any) -> dict[str, Any]:
    return edge_route(web_rule(matches=[{"method": method}]), kind="GRPCRoute")


def rewrite(path: dict[str, Any]) -> dict[str, Any]:
    return {"type": "URLRewrite", "urlRewrite": {"path": path}}


EDIT = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a", "value": "b"}]}}
REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"statusCode": 301, "scheme": "https"}}
TO_DB = {"backendRefs": [{"name": "db", "port": 1}]}
PREFIX = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}


@pytest.mark.parametrize(
    "obj",
    [
        edge_route(web_rule()),
        edge_route(web_rule(), version="v1beta1"),
        {**edge_route(), "spec": {"parentRefs": [{"name": "edge"}]}},  # one rule for all requests, without a backend
        path("/a/b%20c"),
        path("/v[0-9]+", "RegularExpression"),
        match(method="GET", headers=[{"name": "X", "value": "1"}], queryParams=[{"name": "q", "value": "1"}]),
        filtered(EDIT, mirror(), mirror()),
        filtered(mirror(percent=42)),
        filtered(mirror(fraction={"numerator": 5, "denominator": 1000})),
        filtered(mirror(percent=100, fraction={"numerator": 1, "denominator": 10})),  # valid, with a warning (D3)
        filtered(mirror(fraction={})),
        edge_route({"filters": [REDIRECT]}),
        filtered(rewrite(PREFIX)),
        backend(kind="Foo", group="example.com", port=None),
        backend(weight=0, filters=[EDIT]),
        parents({"sectionName": "a"}, {"sectionName": "b"}),
        parents({"port": 80}, {"port": 81}),
        parents({}, {"kind": "Service", "group": ""}),
        timeouts(request="1h30m", backendRequest="500ms"),
        timeouts(request="0s", backendRequest="5s"),
        grpc(service="com.example.User", method="Login"),
        grpc(type="RegularExpression", service=".*User"),
        edge_route({"backendRefs": [{"name": "db", "port": 1}]}, kind="TCPRoute", version="v1alpha2"),
        edge_route(TO_DB, kind="TLSRoute", hostnames=["db.example.com", "*.example.com"]),
        edge_route(TO_DB, kind="TLSRoute", version="v1alpha2"),
        edge_route(TO_DB, kind="UDPRoute"),
        edge_route(TO_DB, kind="UDPRoute", version="v1alpha2"),
        edge_route(web_rule(name="one"), web_rule(name="two"), hostnames=["a.example.com", "*.example.com"]),
    ],
)
def test_objects_that_the_released_api_allows_are_valid(obj):
    assert validate(obj) == ()


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (edge_route(*[web_rule()] * 17), "spec.rules", "must have at most 16 entries, not 17"),
        (
            filtered({"type": "CORS", "cors": {"allowOrigins": ["*", "https://a.example"]}}),
            f"{FILTER}.cors.allowOrigins",
            "has '*' beside names",
        ),
        (filtered({"type": "CORS"}), f"{FILTER}.cors", "is missing: type CORS needs it"),
        (
            persistent(cookieConfig={"lifetimeType": "Permanent"}),
            f"{SESSION}.absoluteTimeout",
            "is missing: a cookie with",
        ),
        (persistent(type="Header", cookieConfig={}), f"{SESSION}.cookieConfig", "is not allowed with type Header"),
        (persistent(sessionName="a=b"), f"{SESSION}.sessionName", "is no name of a cookie or header"),
        (persistent(type="Header", sessionName="Cookie"), f"{SESSION}.sessionName", "with another meaning"),
        (persistent(absoluteTimeout="5 minutes"), f"{SESSION}.absoluteTimeout", "duration"),
        (edge_route(), "spec.rules", "must have at least 1 entry"),
        (edge_route(web_rule(matches=[{}] * 65)), f"{RULE}.matches", "at most 64"),
        (
            edge_route(*[web_rule(matches=[{}] * 60)] * 3),
            "spec.rules",
            "have 180 matches together; at most 128 are allowed",
        ),
        (edge_route(web_rule(name="a"), web_rule(name="a")), "spec.rules[1].name", "is the name of spec.rules[0] too"),
        (edge_route(web_rule(), hostnames=["1.2.3.4"]), "spec.hostnames[0]", "is an address"),
        (edge_route(web_rule(), hostnames=["*"]), "spec.hostnames[0]", "write *.example.com"),
        (
            edge_route(web_rule(), hostnames=["a.example.com:80"]),
            "spec.hostnames[0]",
            "must be a host name alone, without scheme and port",
        ),
        (path("a"), f"{MATCH}.path.value", "must begin with /"),
        (path("/a//b"), f"{MATCH}.path.value", "must not contain '//'"),
        (path("/a/../b", "Exact"), f"{MATCH}.path.value", "must not contain '/../'"),
        (path("/a/.."), f"{MATCH}.path.value", "must not end with '/..'"),
        (path("/a?b=c"), f"{MATCH}.path.value", "match the query with queryParams"),
        (path("/a b"), f"{MATCH}.path.value", "percent-encode them, for example a space as %20"),
        (path("/a", "Prefix"), f"{MATCH}.path.type", "must be one of Exact, PathPrefix, RegularExpression"),
        (path("/(", "RegularExpression"), f"{MATCH}.path.value", "is not a regular expression in RE2 syntax"),
        (path(5), f"{MATCH}.path.value", "must be text, not a whole number; write it with quotes"),
        (match(method="get"), f"{MATCH}.method", "must be one of GET"),
        (match(headers=[{"name": "a b", "value": "x"}]), f"{MATCH}.headers[0].name", "is not the name of a header"),
        (
            match(headers=[{"name": "a", "value": "(?=x)", "type": "RegularExpression"}]),
            f"{MATCH}.headers[0].value",
            "RE2",
        ),
        (match(queryParams=[{"name": "q"}]), f"{MATCH}.queryParams[0].value", "is missing"),
        (filtered({**EDIT, "type": "URLRewrite"}), f"{FILTER}.urlRewrite", "is missing: type URLRewrite needs it"),
        (
            filtered({**EDIT, "type": "URLRewrite", "urlRewrite": {}}),
            f"{FILTER}.requestHeaderModifier",
            "is not allowed with type URLRewrite",
        ),
        (filtered({"type": "Cache"}), f"{FILTER}.type", "must be one of"),
        (filtered(EDIT, EDIT), f"{RULE}.filters[1].type", "is allowed only once"),
        (filtered(REDIRECT), f"{RULE}.backendRefs", "can't be combined with a RequestRedirect"),
        (
            edge_route({"filters": [REDIRECT, rewrite(PREFIX)]}),
            f"{RULE}.filters",
            "no backend receives a redirected request: leave one of them out",
        ),
        (
            filtered({"type": "RequestRedirect", "requestRedirect": {"statusCode": 200}}),
            f"{FILTER}.requestRedirect.statusCode",
            "must be one of 301, 302, 303, 307, 308, not 200",
        ),
        (filtered(rewrite({"type": "ReplaceFullPath"})), f"{FILTER}.urlRewrite.path.replaceFullPath", "is missing"),
        (
            edge_route(web_rule(rewrite(PREFIX), matches=[{"path": {"type": "Exact", "value": "/a"}}])),
            f"{FILTER}.urlRewrite.path.type",
            "needs a rule with exactly one match, of type PathPrefix",
        ),
        (filtered(mirror(percent=101)), f"{FILTER}.requestMirror.percent", "must be from 0 to 100, not 101"),
        (filtered(mirror(percent=-1)), f"{FILTER}.requestMirror.percent", "must be from 0 to 100, not -1"),
        (
            filtered(mirror(fraction={"denominator": 0})),
            f"{FILTER}.requestMirror.fraction.denominator",
            "must be 1 or more",
        ),
        (
            filtered(mirror(fraction={"numerator": 101})),
            f"{FILTER}.requestMirror.fraction.numerator",
            "must be at most the denominator (100), not 101",
        ),
        (
            filtered(mirror(backendRef={"name": "copy"})),
            f"{FILTER}.requestMirror.backendRef.port",
            "a reference to a Service needs its port",
        ),
        (backend(port=None), f"{RULE}.backendRefs[0].port", "needs its port"),
        (backend(port=True), f"{RULE}.backendRefs[0].port", "must be a whole number, not a boolean"),
        (backend(weight=1_000_001), f"{RULE}.backendRefs[0].weight", "must be from 0 to 1000000"),
        (backend(filters=[EDIT, EDIT]), f"{RULE}.backendRefs[0].filters[1].type", "is allowed only once"),
        (parents({}, {}), "spec.parentRefs[1]", "set different sectionNames or ports"),
        (parents({"sectionName": "a"}, {}), "spec.parentRefs[1]", "set sectionName in both entries, or in neither"),
        (timeouts(request="1.5s"), f"{RULE}.timeouts.request", "is not a duration"),
        (
            timeouts(request="1s", backendRequest="2s"),
            f"{RULE}.timeouts.backendRequest",
            "must not be longer than the timeout of the whole request (1s)",
        ),
        (grpc(type="Exact"), f"{MATCH}.method", "names neither service nor method"),
        (grpc(service="a/b"), f"{MATCH}.method.service", "is not a gRPC service"),
        (grpc(method="("), f"{MATCH}.method.method", "is not a gRPC method"),
        (
            edge_route(web_rule(REDIRECT), kind="GRPCRoute"),
            f"{FILTER}.type",
            "must be one of ResponseHeaderModifier, RequestHeaderModifier, RequestMirror, ExtensionRef",
        ),
        (edge_route({}, kind="TCPRoute", version="v1alpha2"), f"{RULE}.backendRefs", "is missing"),
        (edge_route({}, kind="UDPRoute"), f"{RULE}.backendRefs", "is missing"),
        (edge_route(TO_DB, kind="TLSRoute", hostnames=["1.2.3.4"]), "spec.hostnames[0]", "is an address"),
        ({**edge_route(web_rule()), "sepc": {}}, "sepc", "is not a field; did you mean spec?"),
        (
            filtered(
                {
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"set": [{"name": "a", "value": "b\r\nc: d"}]},
                }
            ),
            f"{FILTER}.requestHeaderModifier.set[0].value",
            r"'b\r\nc: d' has a control character",
        ),
        (
            backend(
                filters=[
                    {
                        "type": "ResponseHeaderModifier",
                        "responseHeaderModifier": {"add": [{"name": "a", "value": "\x00"}]},
                    }
                ]
            ),
            f"{RULE}.backendRefs[0].filters[0].responseHeaderModifier.add[0].value",
            "has a control character",
        ),
        (
            filtered(
                {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a\nb"}}}
            ),
            f"{FILTER}.urlRewrite.path.replaceFullPath",
            "has a control character",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_field(obj, field, message):
    found = {cause.field: cause.message for cause in validate(obj)}
    assert message in found.get(field, ""), found


@pytest.mark.parametrize(("port", "hint"), [("80", "write it without quotes"), (True, "")])
def test_only_a_number_in_quotes_gets_a_hint_about_quotes(port, hint):
    (cause,) = validate(edge_route(web_rule(backendRefs=[{"name": "web", "port": port}])))
    assert cause.message.partition("; ")[2] == hint


def test_all_mistakes_are_reported_together():
    wrong = edge_route(
        web_rule(
            mirror(percent=101), matches=[{"path": {"value": "a"}, "method": "get"}], timeouts={"request": "soon"}
        ),
        {"backendRefs": [{"name": "web"}]},
        hostnames=["-"],
    )
    assert {cause.field for cause in validate(wrong)} == {
        "spec.hostnames[0]",
        f"{FILTER}.requestMirror.percent",
        f"{MATCH}.path.value",
        f"{MATCH}.method",
        f"{RULE}.timeouts.request",
        "spec.rules[1].backendRefs[0].port",
    }


@pytest.mark.parametrize("junk", [None, 1, "x", [], {}, [1], [None], [[]], {"a": []}])
def test_values_of_wrong_types_are_reported(junk):
    for obj in (
        edge_route(junk),
        edge_route(web_rule(junk)),
        edge_route(web_rule(matches=junk)),
        edge_route(web_rule(matches=[junk])),
        edge_route(web_rule(timeouts=junk)),
        filtered(mirror(fraction=junk)),
        filtered({"type": junk, "requestMirror": junk}),
        backend(filters=junk),
        grpc(service=junk),
        {**edge_route(), "spec": junk},
        edge_route(web_rule(), parentRefs=junk),
        edge_route(web_rule(), parentRefs=[junk]),
        path("/", junk),
    ):
        for cause in validate(obj):
            assert cause.message


def test_missing_optional_fields_are_none():
    """D3: a missing field must differ from a written default."""
    (found,) = (decode(filtered(mirror(percent=42), mirror(fraction={"numerator": 5}))),)
    assert isinstance(found, HTTPRoute)
    first, second = (item.request_mirror for item in found.spec.rules[0].filters)
    assert first is not None
    assert second is not None
    assert (first.percent, first.fraction) == (42, None)
    assert (second.percent, second.fraction) == (None, Fraction(numerator=5))


def test_both_versions_of_an_http_route_decode_to_the_same_value():
    assert decode(edge_route(web_rule(), version="v1beta1")) == decode(edge_route(web_rule()))


def test_each_kind_decodes_to_its_type():
    assert isinstance(decode(grpc(method="Login")), GRPCRoute)
    tcp = decode(edge_route({"backendRefs": [{"name": "db", "port": 1}]}, kind="TCPRoute", version="v1alpha2"))
    assert isinstance(tcp, GatewayTCPRoute)
    assert tcp.spec.rules[0].backend_refs[0].weight == 1
    tls = decode(edge_route(TO_DB, kind="TLSRoute", hostnames=["db.example.com"], version="v1alpha3"))
    assert isinstance(tls, TLSRoute)
    assert tls.spec.hostnames == ("db.example.com",)
    udp = decode(edge_route(TO_DB, kind="UDPRoute", version="v1alpha2"))
    assert isinstance(udp, GatewayUDPRoute)
    assert udp.spec.rules[0].backend_refs[0].name == "db"
