"""A plan says which requests a change moves, from where to where, with an example and the cause."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import (
    Object,
    backed_service,
    container,
    deployment,
    external_backend,
    external_ref,
    gateway,
    listener,
    manifest,
    port,
    route,
    rule,
    service,
    service_parent,
    smi_tcp_route,
    split,
    tcp_rule,
    traffic_target,
)
from tests.plan.manifests import (
    SERVICES,
    compiled,
    group,
    path_rule,
    planned,
    split_of,
    target,
    website_route,
    workload,
)

from headgate.kinds import GATEWAY
from headgate.model.identities import spiffe_id
from headgate.plan.lines import access_line, summary
from headgate.plan.words import callers_words
from headgate.plan.world import Origin
from headgate.resources.meta import Key
from headgate.resources.registry import BACKEND, TRAFFIC_SPLIT

V1, V2 = "default/v1:8080", "default/v2:8080"
ADDRESS = {"addresses": [{"value": "127.0.0.10"}]}


def identity(name: str) -> str:
    return spiffe_id("cluster.local", "default", name)


def test_equal_relative_weights_are_no_change(tmp_path):
    assert planned(tmp_path, [SERVICES, split_of(50, 50)], [SERVICES, split_of(30, 30)]).is_empty


def test_new_weights_move_a_share_of_all_requests(tmp_path):
    found = planned(tmp_path, [SERVICES, split_of(90, 10)], [SERVICES, split_of(60, 40)])
    (item,) = found.requests
    assert str(item.entry) == "Service default/website:8080"
    assert item.request_messages == ("all requests",)
    assert item.whole
    assert item.change_messages == (f"30% of them from {V1} to {V2}",)
    assert item.moved_share.fraction == Fraction(3, 10)
    assert item.command == "headgate explain http://website.default:8080/"
    assert item.causes == (Origin(object=TRAFFIC_SPLIT.key("default", "website"), field="spec.backends"),)


def test_a_new_match_takes_only_the_requests_that_earlier_routes_leave(tmp_path):
    early = group("early", pathRegex="/api/v1")
    before = [SERVICES, early, split_of(1, 0, name="early", group="early"), split_of(0, 1)]
    new = [group("new", pathRegex="/api", methods=["GET"]), split_of(1, 0, name="new", group="new")]
    (item,) = planned(tmp_path, before, [*before, *new]).requests
    assert item.request_messages == ("GET, path begins with /api",)
    assert item.change_messages == (f"all of them from {V2} to {V1}",)
    assert "GET website.default:8080/api" in item.example
    assert "/api/v1" not in item.example


def test_the_order_of_rules_matters_only_where_they_overlap(tmp_path):
    apart = [path_rule("/a", v1=1), path_rule("/b", v2=1)]
    assert planned(
        tmp_path / "1", [SERVICES, website_route(*apart)], [SERVICES, website_route(*reversed(apart))]
    ).is_empty
    prefix = {"matches": [{"path": {"type": "RegularExpression", "value": "/(a|c).*"}}]}
    matching = {**prefix, "backendRefs": [{"name": "v1", "port": 8080}]}
    other = {
        "matches": [{"path": {"type": "RegularExpression", "value": "/[ab]x"}}],
        "backendRefs": [{"name": "v2", "port": 8080}],
    }
    (item,) = planned(
        tmp_path / "2", [SERVICES, website_route(matching, other)], [SERVICES, website_route(other, matching)]
    ).requests
    assert item.example == "GET website.default:8080/ax"
    assert item.change_messages == (f"all of them from {V1} to {V2}",)


def test_mirrors_timeouts_filters_and_redirects_are_named(tmp_path):
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "v2", "port": 8080}, "percent": 10}}
    header = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-a", "value": "1"}]}}
    changed = path_rule("/", v1=1, timeouts={"request": "2s"}, filters=[mirror, header])
    (item,) = planned(
        tmp_path / "1", [SERVICES, website_route(path_rule("/", v1=1))], [SERVICES, website_route(changed)]
    ).requests
    assert item.change_messages == (
        f"copies to {V2}: 0% -> 10%",
        "timeout of the request: none -> 2000 ms",
        "filter added: set request header x-a: 1",
    )
    redirect = {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.org", "statusCode": 301}}]}
    (item,) = planned(
        tmp_path / "2", [SERVICES, website_route(path_rule("/", v1=1))], [SERVICES, website_route(redirect)]
    ).requests
    assert f"all of them from {V1} to 301" in item.change_messages
    assert "redirect: none -> redirect with 301: host b.org" in item.change_messages


def test_new_sessions_are_named(tmp_path):
    plain = {"backendRefs": [{"name": "v1", "port": 8080}, {"name": "v2", "port": 8080, "weight": 0}]}
    persistent = {"absoluteTimeout": "5m", "cookieConfig": {"lifetimeType": "Permanent"}, "sessionName": "user"}
    (item,) = planned(
        tmp_path,
        [SERVICES, website_route(plain)],
        [SERVICES, website_route({**plain, "sessionPersistence": persistent})],
    ).requests
    assert item.change_messages == ("sessions: none -> by the cookie user, for 300 s",)


def test_the_redirect_of_one_backend_is_named(tmp_path):
    moved = {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.org", "statusCode": 301}}
    backends = [{"name": "v1", "port": 8080, "weight": 3}, {"name": "v2", "port": 8080, "filters": [moved]}]
    (item,) = planned(
        tmp_path,
        [SERVICES, website_route(path_rule("/", v1=3, v2=1))],
        [SERVICES, website_route({"backendRefs": backends})],
    ).requests
    assert item.change_messages == (
        f"25% of them from {V2} to 301 (RequestRedirect)",
        "filter added: 301 (RequestRedirect): redirect with 301: host b.org",
    )


def test_a_rewrite_of_another_matched_prefix_is_a_change(tmp_path):
    rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}
    fields = {"filters": [{"type": "URLRewrite", "urlRewrite": rewrite}]}
    before, after = (
        website_route(path_rule("/a", v1=1, **fields)),
        website_route(path_rule("/a/b", v1=1, **fields), path_rule("/a", v1=1, **fields)),
    )
    (item,) = planned(tmp_path, [SERVICES, before], [SERVICES, after]).requests
    assert item.change_messages == ("matched prefix: /a -> /a/b",)
    assert item.request_messages == ("path prefix /a, path prefix /a/b",)


def test_a_rule_that_no_request_reaches_any_more_comes_first(tmp_path):
    before = [SERVICES, group("late", pathRegex="/a/b"), split_of(1, 0, name="z", group="late")]
    new = [group("early", pathRegex="/a"), split_of(0, 1, name="a", group="early")]
    found = planned(tmp_path, before, [*before, *new])
    assert {item.reason for item in found.unreachable} == {"Shadowed", "NoEffect"}
    assert all(str(item.causes[0].object) == "TrafficSplit default/z" for item in found.unreachable)
    assert len(found.requests) == 2


def test_the_first_requests_to_a_new_service_or_port_move_from_nowhere(tmp_path: Path) -> None:
    late = [manifest(service("late", *ports)) for ports in ((80,), (80, 81))]
    (new,) = planned(tmp_path / "new", [SERVICES], [SERVICES, late[0]]).requests
    assert new.change_messages == ("new Service", "all of them to 503 (default/late:80: NoReadyEndpoints)")
    (added,) = planned(tmp_path, [SERVICES, late[0]], [SERVICES, late[1]]).requests
    assert added.change_messages == ("new port", "all of them to 503 (default/late:81: NoReadyEndpoints)")


def test_the_first_requests_to_a_new_gateway_or_listener_move_from_nowhere(tmp_path: Path) -> None:
    routed = manifest(route("website", path_rule(v1=1), parents=[{"name": "edge"}]))
    ports = [listener(80), listener(81, "more")]
    edges = [manifest(gateway("edge", *ports[:number], status=ADDRESS)) for number in (1, 2)]
    opened = planned(tmp_path / "new", [SERVICES, routed], [SERVICES, routed, edges[0]]).requests
    assert {change.change_messages[0] for change in opened} == {"new Gateway"}
    wider = planned(tmp_path, [SERVICES, routed, edges[0]], [SERVICES, routed, edges[1]]).requests
    assert {change.change_messages[0] for change in wider} == {"new port"}


def test_a_service_that_disappears_answers_nothing(tmp_path):
    (item,) = planned(tmp_path, [SERVICES, workload("shop")], [SERVICES]).requests
    assert item.change_messages == ("all of them from default/shop:8080 to 404 (NoSuchPort)",)
    assert {str(cause.object) for cause in item.causes} == {"Deployment default/shop", "Service default/shop"}


def test_access_is_gained_and_lost_by_identity(tmp_path):
    pods = [workload("shop"), workload("web"), workload("thief")]
    before = [*pods, group("g", pathRegex="/items", methods=["GET"]), target("web", "web")]
    after = [*pods, group("g", pathRegex="/items/1", methods=["*"]), target("web", "web", "thief")]
    found = planned(tmp_path, before, after)
    (lost,) = found.lost
    assert (lost.callers, lost.request_message) == ((identity("web"),), "GET, path begins with /items")
    gained = {(item.callers, item.request_message, item.command) for item in found.gained}
    assert gained == {
        (
            (identity("web"),),
            "path begins with /items/1",
            "headgate explain POST http://shop.default:8080/items/1 --from serviceaccount/web -n default",
        ),
        (
            (identity("thief"),),
            "path begins with /items/1",
            "headgate explain http://shop.default:8080/items/1 --from serviceaccount/thief -n default",
        ),
    }
    assert all("HTTPRouteGroup default/g" in {str(cause.object) for cause in item.causes} for item in found.gained)


def test_a_rule_for_other_callers_is_no_cause_of_lost_access(tmp_path: Path) -> None:
    pods = [workload("shop"), workload("web")]
    before = [*pods, group("g", methods=["GET", "POST"]), target("web", "web"), target("a", "b")]
    after = [*pods, group("g", methods=["GET"]), target("web", "web"), target("a", "c")]
    lost = next(row for row in planned(tmp_path, before, after).lost if row.callers == (identity("web"),))
    assert [str(cause.object) for cause in lost.causes] == ["HTTPRouteGroup default/g"]


def test_a_route_is_the_cause_of_requests_that_none_of_its_rules_matches(tmp_path: Path) -> None:
    before = [SERVICES, split_of(1, 1)]
    changes = planned(tmp_path, before, [*before, website_route(path_rule("/a", v1=1))])
    rest = next(change for change in changes.requests if change.request_messages == ("all other requests",))
    assert [f"{cause.object}: {cause.field}" for cause in rest.causes] == ["HTTPRoute default/website: spec.rules"]


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        ("/items$", "path /items"),
        ("/items/1.0$", "path begins with a match of /items/1.0$"),
        ("/a$|/b$", "path begins with a match of /a$|/b$"),
    ],
)
def test_a_path_that_ends_with_a_dollar_sign_is_named_without_operators(tmp_path, regex, text):
    pods = [workload("shop"), workload("web")]
    before, after = ([*pods, group("g", pathRegex=path), target("web", "web")] for path in ("/none$", regex))
    assert [row.request_message for row in planned(tmp_path, before, after).gained] == [text]


def test_the_first_rule_closes_a_workload_to_all_other_callers(tmp_path):
    pods = [workload("shop"), workload("web")]
    found = planned(tmp_path, pods, [*pods, group("g", pathRegex="/.*"), target("web", "web")])
    to = "to ServiceAccount default/shop, port 8080"
    assert [access_line(row) for row in found.lost] == [
        f"every ServiceAccount except default/web, and callers without a sidecar, may no longer send all requests {to}",
        f"ServiceAccount default/web may no longer send requests other than path begins with a match of /.* {to}",
    ]
    assert not found.gained
    assert (found.lost[0].except_callers, found.lost[1].except_callers) == ((identity("web"),), ())
    assert "//" in found.lost[1].example or "/." in found.lost[1].example  # rules allow no ambiguous path


def test_a_rule_for_connections_takes_nothing_from_its_caller(tmp_path):
    template = {"account": "database", "labels": {"app": "database"}}
    pods = manifest(
        deployment("database", container("app", 5000), labels={"app": "database"}, template=template),
        service("database", port(5000, name="tcp"), selector={"app": "database"}),
    )
    rules = manifest(traffic_target("a", "database", ["web"], [tcp_rule("t")]), smi_tcp_route("t"))
    (lost,) = planned(tmp_path, [pods], [pods, rules]).lost
    assert access_line(lost) == (
        "every ServiceAccount except default/web, and callers without a sidecar, may no longer send connections to"
        " ServiceAccount default/database, port 5000"
    )


def test_the_command_of_lost_access_names_a_caller_that_loses(tmp_path):
    """It is a workload's account, near the called pods if there is one, and never one that the rule allows."""
    pods = [workload(name) for name in ("another", "shop", "web")]
    rules = [group("g", pathRegex="/.*"), target("a", "web")]
    lost = planned(tmp_path / "workload", pods, [*pods, *rules]).lost[0]
    assert lost.command == "headgate explain http://shop.default:8080/ --from serviceaccount/another -n default"
    alone = planned(tmp_path / "alone", pods[1:], [*pods[1:], *rules]).lost[0]
    assert alone.command == "headgate explain http://shop.default:8080/"


@pytest.mark.parametrize(
    ("sources", "excepted", "words"),
    [
        (["*"], [], "every ServiceAccount"),
        (["*", ""], [], "every ServiceAccount and callers without a sidecar"),
        (["*"], ["a"], "every ServiceAccount except default/a"),
        (["*", ""], ["a", "b"], "every ServiceAccount except default/a and default/b, and callers without a sidecar"),
        (["*"], ["a", "b", "c"], "every ServiceAccount except default/a, default/b and default/c"),
        (["*"], list("abcde"), "every ServiceAccount except default/a, default/b, default/c and 2 more"),
        (["*", "a"], ["b"], "every ServiceAccount except default/b"),
        (["a", "b"], [], "ServiceAccount default/a and ServiceAccount default/b"),
        (["*", ""], ["*/"], "every ServiceAccount except those of namespace default, and callers without a sidecar"),
        (["*"], ["*/", "a"], "every ServiceAccount except those of namespace default"),
        (["*/"], ["a"], "every ServiceAccount of namespace default except default/a"),
        (["*/", "a"], [], "every ServiceAccount of namespace default"),
        (
            ["a", "*"],
            ["*/", "b"],
            "ServiceAccount default/a, and every ServiceAccount except those of namespace default",
        ),
    ],
)
def test_callers_are_named_with_at_most_three_exceptions(sources, excepted, words):
    full = {"*": "*", "": "", "*/": identity("*")}
    assert (
        callers_words(*([full.get(name, identity(name)) for name in names] for names in (sources, excepted))) == words
    )


def test_a_backend_that_refuses_the_requests_it_gets_is_a_loss_of_access(tmp_path):
    pods = [SERVICES, workload("shop"), workload("canary"), group("g", pathRegex="/items")]
    rules = [target("web", "web"), target("other", "other", server="canary")]
    weights, only_shop = (manifest(split("website", {"shop": 90, "canary": weight})) for weight in (10, 0))
    (lost,) = planned(tmp_path / "refused", [*pods, *rules, only_shop], [*pods, *rules, weights]).lost
    assert (lost.callers, lost.request_message) == ((identity("web"),), "path begins with /items")
    assert (str(lost.entry), lost.destination) == ("Service default/website:8080", "")
    assert (lost.moved_service, lost.port) == ("default/canary", 8080)
    assert lost.command == "headgate explain http://website.default:8080/items --from serviceaccount/web -n default"
    rules.append(target("both", "web", server="canary"))
    assert not planned(tmp_path / "allowed", [*pods, *rules, only_shop], [*pods, *rules, weights]).lost


def test_a_tls_config_changes_the_mode_of_its_pods(tmp_path):
    config = "apiVersion: headgate.dev/v1beta1\nkind: TLSConfig\nmetadata: {name: strict}\nspec: {selector: {matchLabels: {app: shop}}}\n"
    found = planned(tmp_path, [workload("shop")], [workload("shop"), config])
    (item,) = found.tls
    assert (item.pods, item.before, item.after) == (("default/shop",), "Permissive", "Strict")
    assert str(item.causes[0].object) == "TLSConfig default/strict"


def test_a_summary_has_one_line_for_each_difference(tmp_path):
    one = compiled(tmp_path / "1", SERVICES, split_of(90, 10)).compiled
    other = compiled(tmp_path / "2", SERVICES, split_of(0, 10)).compiled
    assert summary(one, one) == ()
    assert summary(one, other) == (f"Service default/website:8080: all requests: 90% of them from {V1} to {V2}",)


def test_an_expression_that_is_too_complex_may_differ(tmp_path):
    hard = "/(a|b)*a(a|b){12}"
    rules = [f"/(a|b)*b(a|b){{{number}}}.*" for number in (9, 10, 11)]
    before = [
        {
            "matches": [{"path": {"type": "RegularExpression", "value": item}}],
            "backendRefs": [{"name": "v1", "port": 8080}],
        }
        for item in rules
    ]
    new = {
        "matches": [{"path": {"type": "RegularExpression", "value": f"{hard}(?:c|{hard})"}}],
        "backendRefs": [{"name": "v2", "port": 8080}],
    }
    found = planned(tmp_path, [SERVICES, website_route(*before)], [SERVICES, website_route(*before, new)]).requests
    assert found
    assert all(item.certain == bool(item.example) for item in found)


def test_a_change_of_retries_is_a_change_of_requests(tmp_path):
    def web(**annotations):
        return manifest(*backed_service("web", ("web-1", "10.1.0.1"), annotations=annotations))

    (item,) = planned(
        tmp_path, [web()], [web(**{"headgate.dev/retry": "on=503", "headgate.dev/limits": "requests=9"})]
    ).requests
    assert item.change_messages == (
        "now retries: up to 2, on 503, reset, at most 20% of the active requests",
        "now limit of requests: 9",
    )


def outside(name: str = "api", hostname: str = "a.example.com", **spec: Any) -> str:
    return manifest(external_backend(name, hostname, **spec))


EDGE = manifest(gateway("edge", listener(80), listener(5432, "tcp", protocol="TCP"), status=ADDRESS))
REWRITE = {"type": "URLRewrite", "urlRewrite": {"hostname": "own.example.com"}}
COPY = {"type": "RequestMirror", "requestMirror": {"backendRef": external_ref("api")}}
AUTH = {"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "backendRef": external_ref("api"), "http": {}}}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("TCPRoute", {"backendRefs": [external_ref("api")]}),
        ("HTTPRoute", {"backendRefs": [external_ref("api")], "filters": [REWRITE]}),
        ("HTTPRoute", {"backendRefs": [external_ref("other")], "filters": [COPY]}),
        ("HTTPRoute", {"backendRefs": [external_ref("other")], "filters": [AUTH]}),
    ],
)
def test_requests_to_a_server_outside_move_with_its_dns_name(tmp_path: Path, kind: str, rule: Object) -> None:
    parents = [{"name": "edge", "sectionName": "tcp" if kind == "TCPRoute" else "http"}]
    base = [EDGE, outside("other", "other.example.com"), manifest(route("out", rule, parents=parents, kind=kind))]
    (change, *more) = planned(tmp_path, [*base, outside()], [*base, outside(hostname="b.example.com")]).requests
    assert more == []
    (message,) = change.change_messages
    assert message.endswith(": DNS name a.example.com -> b.example.com")
    assert change.causes == (Origin(object=BACKEND.key("default", "api"), field="spec"),)


def test_a_default_gateway_is_the_cause_of_requests_to_the_routes_that_it_gets(tmp_path: Path) -> None:
    """GEP-3793: a route with useDefaultGateways does not change when a Gateway becomes a default one."""
    base = [
        SERVICES,
        manifest(route("out", {"backendRefs": [external_ref("api")]}, parents=[], useDefaultGateways="All")),
        outside(),
    ]
    edges = [
        manifest(gateway("edge", listener(80), status=ADDRESS, **scope)) for scope in ({}, {"defaultScope": "All"})
    ]
    (change,) = planned(tmp_path, [*base, edges[0]], [*base, edges[1]]).requests
    assert change.causes == (Origin(object=Key(GATEWAY, "Gateway", "default", "edge"), field="spec"),)


def test_the_first_tls_route_of_a_service_port_closes_connections_with_other_server_names(tmp_path: Path) -> None:
    ports = {"name": "tls", "port": 443}
    base = manifest(*(service(name, ports, selector={"app": name}) for name in ("web", "v2")))
    names = ["b.example.com", "*.shop.example.com", "eu.shop.example.com"]
    routes = [
        manifest(
            route(name, rule({"v2": 1}, port=443), parents=[service_parent("web")], kind="TLSRoute", hostnames=[host])
        )
        for name, host in zip("abc", names, strict=True)
    ]
    for before, after in (((), routes), (routes, ())):
        changes = planned(tmp_path / str(len(before)), [base, *before], [base, *after]).requests
        (closed,) = [change for change in changes if change.entry.host == "*"]
        assert (closed.request_messages, closed.whole) == (("all other server names",), False)
        assert {str(each.object) for each in closed.causes} == {f"TLSRoute default/{name}" for name in "abc"}
        assert all(each.deleted is bool(before) for each in closed.causes)
        (wildcard,) = [change for change in changes if change.entry.host == "*.shop.example.com"]
        assert (wildcard.request_messages, wildcard.causes[0].object.name) == (("all other server names",), "b")
    # A route that gets a further name closes nothing.
    further = manifest(
        route("a", rule({"v2": 1}, port=443), parents=[service_parent("web")], kind="TLSRoute", hostnames=names)
    )
    assert "*" not in {change.entry.host for change in planned(tmp_path, [base, routes[0]], [base, further]).requests}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"backendRefs": [external_ref("api")]}, "default/api.xbackend:443: protocol http -> http2"),
        (
            {"backendRefs": [external_ref("other")], "filters": [COPY]},
            "default/api.xbackend:443: protocol http -> http2",
        ),
        (
            {"backendRefs": [external_ref("other")], "filters": [AUTH]},
            "external authorization: default/api.xbackend:443 over HTTP -> default/api.xbackend:443 over HTTP/2",
        ),
    ],
)
def test_another_protocol_of_a_server_outside_is_named(tmp_path: Path, rule: Object, message: str) -> None:
    base = [EDGE, outside("other", "other.example.com"), manifest(route("out", rule, parents=[{"name": "edge"}]))]
    (change,) = planned(tmp_path, [*base, outside()], [*base, outside(protocol="H2C")]).requests
    assert change.change_messages == (message,)
