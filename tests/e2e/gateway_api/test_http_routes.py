"""HTTPRoutes of Gateways: what the conformance suite tests for the feature HTTPRoute."""

import json

import pytest
from tests.e2e.gateway_api.objects import (
    edge_gateway,
    edge_route,
    fields,
    path,
    redirect,
    route_grant,
    rule_of,
    web_listener,
)
from tests.e2e.gateway_api.site import Site, assert_shares
from tests.e2e.manifests import endpoints, external, service_manifest
from tests.waiting import until

LABEL = "example.com/backend"
CHANGED = ("x-header", "x-set", "x-add", "x-remove", "other")


@pytest.mark.conformance("HTTPRouteSimpleSameNamespace")
def test_a_route_of_the_same_namespace_is_served(site: Site) -> None:
    site.apply(
        edge_gateway(web_listener(allowedRoutes={"namespaces": {"from": "Same"}})), edge_route("app", rule_of("v1"))
    )
    assert site.ask(site.accepted("app"), "any/").answered_by == "v1"


@pytest.mark.conformance("HTTPRouteCrossNamespace", "HTTPRouteInvalidCrossNamespaceParentRef")
def test_a_listener_selects_the_namespaces_of_its_routes(site: Site) -> None:
    """The listener accepts an existing route once the namespace of the route gets the label."""
    selected = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {LABEL: "yes"}}}}
    other = site.neighbor()
    site.apply(edge_gateway(web_listener(allowedRoutes=selected)))
    other.apply(edge_route("app", rule_of("v1"), parent={"namespace": site.namespace}))
    other.wait_for_parent("httproute/app", Accepted="NotAllowedByListeners", ResolvedRefs="ResolvedRefs")
    site.wait_for_attached({"http": 0})
    labelled = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": other.namespace, "labels": {LABEL: "yes"}},
    }
    site.apply(json.dumps(labelled))
    other.wait_for_parent("httproute/app", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    address = site.accepted()
    assert site.ask(address, "any/").answered_by == "v1"
    assert other.backends["v1"].requests == 1


@pytest.mark.conformance("HTTPRouteInvalidParentRefNotMatchingSectionName")
def test_a_route_of_an_unknown_listener_is_not_accepted(site: Site) -> None:
    site.apply(edge_gateway(), edge_route("app", rule_of("v1"), parent={"sectionName": "unknown"}))
    site.wait_for_parent("httproute/app", Accepted="NoMatchingParent", ResolvedRefs="ResolvedRefs")
    site.wait_for_attached({"http": 0})
    assert site.ask(site.accepted(), "any/").status == 404


@pytest.mark.conformance("HTTPRouteInvalidBackendRefUnknownKind", "HTTPRouteInvalidNonExistentBackendRef")
@pytest.mark.parametrize(
    ("reference", "reason"),
    [({"group": "unknown.example.com", "kind": "Unknown"}, "InvalidKind"), ({"name": "missing"}, "BackendNotFound")],
)
def test_requests_for_an_invalid_backend_get_500(site: Site, reference: dict[str, str], reason: str) -> None:
    invalid = {"matches": [path("/v2")], "backendRefs": [{"name": "v2", "port": 8080, **reference}]}
    site.apply(edge_gateway(), edge_route("app", invalid))
    site.wait_for_parent("httproute/app", Accepted="Accepted", ResolvedRefs=reason)
    assert site.ask(site.accepted(), "any/v2").status == 500


@pytest.mark.conformance(
    "HTTPRouteInvalidCrossNamespaceBackendRef",
    "HTTPRouteInvalidReferenceGrant",
    "HTTPRoutePartiallyInvalidViaInvalidReferenceGrant",
    "HTTPRouteReferenceGrant",
)
def test_a_backend_of_another_namespace_needs_a_grant(site: Site) -> None:
    far = site.neighbor()
    other = far.namespace
    rules = [
        {"backendRefs": [{"name": name, "namespace": other, "port": 8080}], "matches": [path(f"/{name}")]}
        for name in ("v1", "v2")
    ]
    site.apply(edge_gateway(), edge_route("app", *rules))
    address = site.accepted()

    def check(reason: str, *, v1: str, v2: str) -> None:
        site.wait_for_parent("httproute/app", Accepted="Accepted", ResolvedRefs=reason)
        assert site.answers(address, "any/v1", "any/v2") == {"any/v1": v1, "any/v2": v2}

    check("RefNotPermitted", v1="500", v2="500")
    far.apply(route_grant("routes", site.namespace))
    check("ResolvedRefs", v1="v1", v2="v2")
    far.apply(route_grant("routes", site.namespace, only="v1"))
    check("RefNotPermitted", v1="v1", v2="500")
    invalid = (
        route_grant("routes", site.namespace, kind="TLSRoute"),
        route_grant("routes", other),
        route_grant("routes", site.namespace, to="Secret"),
        route_grant("routes", site.namespace, only="v3"),
    )
    for refused in invalid:
        far.apply(refused)
        check("RefNotPermitted", v1="500", v2="500")
    site.apply(route_grant("routes", site.namespace))  # a grant belongs in the namespace of the backend
    check("RefNotPermitted", v1="500", v2="500")
    far.apply(route_grant("routes", site.namespace))
    check("ResolvedRefs", v1="v1", v2="v2")
    far.delete("referencegrant/routes")
    check("RefNotPermitted", v1="500", v2="500")


@pytest.mark.conformance("HTTPRouteNoBackendRefs")
def test_requests_of_a_rule_without_backends_get_500(site: Site) -> None:
    site.apply(
        edge_gateway(),
        edge_route("app", rule_of("v1"), {"matches": [path("/omitted")]}, rule_of(matches=[path("/empty")])),
    )
    expected = {"/": "v1", "/omitted": "500", "/empty": "500"}
    assert site.answers(site.accepted("app"), *expected) == expected


@pytest.mark.conformance("HTTPRouteObservedGenerationBump")
def test_a_route_reports_its_newest_generation(site: Site) -> None:
    site.apply(edge_gateway(), edge_route("app", rule_of("v1")))
    address, generation = site.accepted("app"), site.generation("httproute/app")
    site.apply(edge_route("app", rule_of("v2")))
    site.accepted("app")
    assert site.generation("httproute/app") == generation + 1
    assert site.ask(address, "any/").answered_by == "v2"


@pytest.mark.conformance("HTTPRouteHTTPSListener")
def test_hosts_of_a_route_are_matched_without_the_port(site: Site) -> None:
    site.apply(edge_gateway(), edge_route("app", rule_of("v1"), hosts=["example.org"]))
    expected = {"example.org/": "v1", "example.org:8443/": "v1", "other.example.org/": "404"}
    assert site.answers(site.accepted("app"), *expected) == expected


@pytest.mark.conformance("HTTPRouteListenerHostnameMatching")
def test_the_hostname_of_a_listener_selects_its_routes(site: Site) -> None:
    hostnames = {"one": "bar.com", "two": "foo.bar.com", "three": "*.bar.com", "four": "*.foo.com"}
    parents = [{"name": "edge", "sectionName": name} for name in ("three", "four")]
    both = json.loads(edge_route("v3", rule_of("v3")))
    both["spec"]["parentRefs"] = parents
    site.apply(
        edge_gateway(*(web_listener(name, hostname) for name, hostname in hostnames.items())),
        edge_route("v1", rule_of("v1"), parent={"sectionName": "one"}),
        edge_route("v2", rule_of("v2"), parent={"sectionName": "two"}),
        json.dumps(both),
    )
    address = site.accepted("v1", "v2")
    assert [entry["parentRef"]["sectionName"] for entry in site.status("httproute/v3")["parents"]] == ["three", "four"]
    expected = {
        "bar.com/": "v1",
        "foo.bar.com/": "v2",
        "baz.bar.com/": "v3",
        "boo.bar.com/": "v3",
        "multiple.prefixes.bar.com/": "v3",
        "multiple.prefixes.foo.com/": "v3",
        "foo.com/": "404",
        "no.matching.host/": "404",
    }
    assert site.answers(address, *expected) == expected


@pytest.mark.conformance("HTTPRouteHostnameIntersection")
def test_a_route_serves_a_host_only_if_its_listener_serves_the_host_too(site: Site) -> None:
    hostnames = {"specific": "very.specific.com", "wildcard": "*.wildcard.io", "another": "*.anotherwildcard.io"}
    hosts = {
        "s1": ["non.matching.com", "*.nonmatchingwildcard.io", "very.specific.com"],
        "s2": ["non.matching.com", "wildcard.io", "foo.wildcard.io", "foo.bar.wildcard.io"],
        "s3": ["non.matching.com", "*.specific.com"],
        "s4": ["*.anotherwildcard.io"],
        "s5": ["specific.but.wrong.com", "wildcard.io"],
    }
    site.apply(
        edge_gateway(*(web_listener(name, hostname) for name, hostname in hostnames.items())),
        *(edge_route(name, rule_of("v1", matches=[path(f"/{name}")]), hosts=found) for name, found in hosts.items()),
        edge_gateway(name="all"),
        edge_route("all", rule_of("v2"), parent={"name": "all"}, hosts=["first.com", "sub.first.com", "*.second.com"]),
    )
    address = site.accepted("s1", "s2", "s3", "s4")
    site.wait_for_parent("httproute/s5", Accepted="NoMatchingListenerHostname")
    site.wait_for_attached({"specific": 2, "wildcard": 1, "another": 1})
    served = {
        "s1": {"very.specific.com", "very.specific.com:1234"},
        "s2": {"foo.wildcard.io", "foo.bar.wildcard.io"},
        "s3": {"very.specific.com", "very.specific.com:1234"},
        "s4": {"foo.anotherwildcard.io", "foo.bar.anotherwildcard.io"},
        "s5": set(),
    }
    asked = {host for found in hosts.values() for host in found if "*" not in host}.union(*served.values())
    asked |= {"foo.specific.com", "foo.nonmatchingwildcard.io", "anotherwildcard.io"}
    expected = {f"{host}/{name}": "v1" if host in served[name] else "404" for name in hosts for host in asked}
    assert site.answers(address, *expected) == expected
    assert set(site.answers(address, "very.specific.com/none", "foo.wildcard.io/none").values()) == {"404"}
    expected = {"first.com/": "v2", "sub.first.com/": "v2", "a.second.com/": "v2", "third.com/": "404"}
    assert site.answers(site.accepted("all", name="all"), *expected) == expected


@pytest.mark.conformance("HTTPRouteExactPathMatching")
def test_exact_paths(site: Site) -> None:
    rules = [rule_of(name, matches=[path(f"/{word}", "Exact")]) for name, word in (("v1", "one"), ("v2", "two"))]
    site.apply(edge_gateway(), edge_route("app", *rules))
    expected = {"/one": "v1", "/two": "v2", "/": "404", "/one/example": "404", "/one/": "404", "/Two": "404"}
    assert site.answers(site.accepted("app"), *expected) == expected


@pytest.mark.conformance("HTTPRouteMatching")
def test_paths_and_headers(site: Site) -> None:
    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            rule_of("v1", matches=[path("/"), {"headers": fields(version="one")}]),
            rule_of("v2", matches=[path("/v2"), {"headers": fields(version="two")}]),
        ),
    )
    address = site.accepted("app")
    expected = {
        "/": "v1",
        "/example": "v1",
        "/v2": "v2",
        "/v2/": "v2",
        "/v2?a=b": "v2",
        "/v2/example": "v2",
        "/v2example": "v1",
        "/foo/v2/example": "v1",
    }
    assert site.answers(address, *expected) == expected
    assert site.ask(address, "/", version="one").answered_by == "v1"
    assert site.ask(address, "/", version="two").answered_by == "v2"


@pytest.mark.conformance("HTTPRouteMatchingAcrossRoutes")
def test_matches_of_two_routes(site: Site) -> None:
    site.apply(
        edge_gateway(),
        edge_route(
            "one",
            rule_of("v1", matches=[path("/"), {"headers": fields(version="one")}]),
            hosts=["example.com", "example.net"],
        ),
        edge_route(
            "two", rule_of("v2", matches=[path("/v2"), {"headers": fields(version="two")}]), hosts=["example.com"]
        ),
    )
    address = site.accepted("one", "two")
    expected = {
        "example.com/": "v1",
        "example.com/example": "v1",
        "example.net/example": "v1",
        "example.com/v2": "v2",
        "example.com/v2/example": "v2",
        "example.net/v2": "v1",
    }
    assert site.answers(address, *expected) == expected
    assert site.ask(address, "example.com/example", version="one").answered_by == "v1"
    assert site.ask(address, "example.com/", version="two").answered_by == "v2"


@pytest.mark.conformance("HTTPRouteHeaderMatching")
def test_headers(site: Site) -> None:
    def matches(*wanted: dict[str, str]) -> list[object]:
        return [{"headers": fields(**headers)} for headers in wanted]

    rules = (
        rule_of("v1", matches=matches({"version": "one"})),
        rule_of("v2", matches=matches({"version": "two"})),
        rule_of("v1", matches=matches({"version": "two", "color": "orange"})),
        rule_of("v1", matches=matches({"color": "blue"}, {"color": "green"})),
        rule_of("v2", matches=matches({"color": "red"}, {"color": "yellow"})),
    )
    site.apply(edge_gateway(), edge_route("app", *rules))
    address = site.accepted("app")
    expected = [
        ({"Version": "one"}, "v1"),
        ({"Version": "two"}, "v2"),
        ({"Version": "two", "Color": "orange"}, "v1"),
        ({"Version": "two", "Color": "blue"}, "v2"),
        ({"Color": "orange"}, "404"),
        ({"Some-Other-Header": "one"}, "404"),
        ({"Color": "blue"}, "v1"),
        ({"Color": "green"}, "v1"),
        ({"Color": "red"}, "v2"),
        ({"Color": "yellow"}, "v2"),
        ({"Color": "purple"}, "404"),
        ({}, "404"),
    ]
    assert [(headers, site.ask(address, "/", **headers).answered_by) for headers, _ in expected] == expected


@pytest.mark.conformance("HTTPRoutePathMatchOrder")
def test_exact_paths_precede_longer_prefixes(site: Site) -> None:
    rules = (
        rule_of("v3", matches=[path("/match")]),
        rule_of("v1", matches=[path("/match/prefix"), path("/match", "Exact")]),
        rule_of("v2", matches=[path("/match/prefix/one"), path("/match/exact", "Exact")]),
        rule_of("v3", matches=[path("/match/exact/one", "Exact"), path("/match/exact")]),
    )
    site.apply(edge_gateway(), edge_route("app", *rules))
    expected = {
        "/match/exact/one": "v3",
        "/match/exact": "v2",
        "/match": "v1",
        "/match/prefix/one/any": "v2",
        "/match/prefix/any": "v1",
        "/match/any": "v3",
    }
    assert site.answers(site.accepted("app"), *expected) == expected


@pytest.mark.conformance("HTTPRouteWeight")
def test_weights(site: Site) -> None:
    site.apply(edge_gateway(), edge_route("app", rule_of("v1:70", "v2:30", "v3:0")))
    address = site.accepted("app")
    for _ in range(500):
        assert site.ask(address, "/").status == 200
    counted = {name: backend.requests for name, backend in site.backends.items()}
    assert_shares(counted, {"v1": 350, "v2": 150})
    assert counted["v3"] == 0


@pytest.mark.conformance("HTTPRouteRedirectHostAndStatus")
def test_a_redirect_of_the_host_with_a_status(site: Site) -> None:
    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            redirect("/host", hostname="example.org"),
            redirect("/host-and-status", hostname="example.org", statusCode=301),
        ),
    )
    address = site.accepted("app")
    for target, status in (("/host", 302), ("/host-and-status", 301)):
        answer = site.ask(address, f"any{target}")
        assert (answer.status, answer.headers["location"]) == (status, f"http://example.org:18080{target}")


@pytest.mark.conformance("HTTPRouteRequestHeaderModifier")
def test_changes_of_request_headers(site: Site) -> None:
    def change(prefix: str, **modifier: object) -> dict[str, object]:
        changes = [{"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}]
        return rule_of("v1", matches=[path(prefix)], filters=changes)

    site.apply(
        edge_gateway(),
        edge_route(
            "app",
            change("/set", set=fields(X_Header_Set="set")),
            change("/add", add=fields(X_Header_Add="added")),
            change("/remove", remove=["X-Header-Remove"]),
            change(
                "/multiple",
                set=fields(X_Set_1="s1", X_Set_2="s2"),
                add=fields(X_Add_1="a1", X_Add_2="a2"),
                remove=["X-Remove-1", "X-Remove-2"],
            ),
        ),
    )
    address = site.accepted("app")

    def received(target: str, **headers: str) -> dict[str, str]:
        assert site.ask(address, f"any{target}", **headers).answered_by == "v1"
        found = site.backends["v1"].last
        assert found.target == target
        return {name: value for name, value in found.headers.items() if name.startswith(CHANGED)}

    assert received("/set", other="1") == {"other": "1", "x-header-set": "set"}
    assert received("/set", X_Header_Set="old") == {"x-header-set": "set"}
    assert received("/set", x_header_set="old") == {"x-header-set": "set"}
    assert received("/add") == {"x-header-add": "added"}
    assert received("/add", x_header_add="old") == {"x-header-add": "old,added"}
    assert received("/remove", x_header_remove="old", other="1") == {"other": "1"}
    assert received("/multiple", x_set_2="old", x_add_2="old", x_remove_2="old", other="1") == {
        "other": "1",
        "x-set-1": "s1",
        "x-set-2": "s2",
        "x-add-1": "a1",
        "x-add-2": "old,a2",
    }


@pytest.mark.conformance("HTTPRouteServiceTypes")
def test_backends_without_selector_and_without_cluster_ip(site: Site) -> None:
    labels, backend = {"app": "web"}, site.backends["v1"]
    site.run("web", labels)
    names = ("manual", "headless-manual", "headless")
    site.apply(
        external("manual", backend),
        service_manifest("headless-manual", {"http": 8080}, clusterIP="None"),
        endpoints("headless-manual", {"http": [backend]}),
        service_manifest("headless", {"http": 8080}, selector=labels, clusterIP="None"),
        edge_gateway(),
        edge_route("app", *(rule_of(name, matches=[path(f"/{name}", "Exact")]) for name in names)),
    )
    address = site.accepted("app")
    assert site.answers(address, "/manual", "/headless-manual") == {"/manual": "v1", "/headless-manual": "v1"}
    until(lambda: site.ask(address, "/headless").answered_by == "web", "the pod of the Deployment")
