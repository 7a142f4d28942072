"""ListenerSets: other teams add listeners to a Gateway, with their own certificates and routes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from tests.e2e.gateway_api.objects import (
    PORT,
    edge_gateway,
    edge_route,
    gateway_api_object,
    route_grant,
    rule_of,
    rule_to,
    web_listener,
)
from tests.e2e.gateway_api.site import Site, conditions
from tests.make.objects import GATEWAY_API, manifest
from tests.make.server_certificates import PAIRS
from tests.make.server_certificates import secret as server_secret
from tests.waiting import until

VALID = {
    "Accepted": ("True", "Accepted"),
    "Programmed": ("True", "Programmed"),
    "ResolvedRefs": ("True", "ResolvedRefs"),
    "Conflicted": ("False", "NoConflicts"),
}
ACTIVE = {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")}
PARTLY = {"Accepted": ("True", "ListenersNotValid"), "Programmed": ("True", "Programmed")}
INVALID = dict.fromkeys(("Accepted", "Programmed"), ("False", "ListenersNotValid"))
NOT_ALLOWED = dict.fromkeys(("Accepted", "Programmed"), ("False", "NotAllowed"))
HTTP_KINDS = [{"group": GATEWAY_API, "kind": kind} for kind in ("HTTPRoute", "GRPCRoute")]


def conflict(reason: str) -> Mapping[str, tuple[str, str]]:
    """Return the conditions of a listener that gives way to an earlier one."""
    broken = dict.fromkeys(("Accepted", "Programmed"), ("False", reason))
    return {**VALID, **broken, "Conflicted": ("True", reason)}


def shared_gateway(source: str = "Same", *listeners: Mapping[str, Any], **selector: Any) -> str:
    """Return the Gateway `edge`, which allows ListenerSets of some namespaces; its listener is for `own.example`."""
    allowed = {"namespaces": {"from": source, **selector}}
    return edge_gateway(*(listeners or (web_listener("own", "own.example"),)), allowedListeners=allowed)


def listener_set(name: str, *listeners: Mapping[str, Any], **parent: Any) -> str:
    """Return a ListenerSet of the Gateway `edge`; `parent` has further fields of its parentRef."""
    return gateway_api_object("ListenerSet", name, {"parentRef": {"name": "edge", **parent}, "listeners": listeners})


def at(name: str, **more: Any) -> Mapping[str, Any]:
    """Return a parentRef to a ListenerSet."""
    return {"kind": "ListenerSet", "name": name, **more}


def wait_for_set(site: Site, name: str, expected: Mapping[str, tuple[str, str]]) -> Any:
    """Wait until a ListenerSet has conditions; return its status."""

    def same() -> Any:
        status = site.status(f"listenerset/{name}")
        assert conditions(status) == expected, status
        return status

    return until(same, f"the ListenerSet {name}")


def listeners_of(site: Site, name: str) -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Return the conditions of the listeners of a ListenerSet."""
    return {entry["name"]: conditions(entry) for entry in site.status(f"listenerset/{name}")["listeners"]}


def wait_for_routes(site: Site, name: str, expected: Mapping[str, int]) -> None:
    """Wait until the listeners of a ListenerSet are valid, and have these numbers of attached routes."""

    def same() -> bool:
        entries = site.status(f"listenerset/{name}")["listeners"]
        assert {entry["name"]: entry["attachedRoutes"] for entry in entries} == expected, entries
        assert all(entry["supportedKinds"] == HTTP_KINDS and conditions(entry) == VALID for entry in entries), entries
        return True

    until(same, f"the routes of the ListenerSet {name}")


def wait_for_number(site: Site, number: int) -> None:
    """Wait until the Gateway is accepted with this number of ListenerSets."""

    def same() -> bool:
        status = site.status("gateway/edge")
        assert conditions(status)["Accepted"] == ("True", "Accepted")
        assert status["attachedListenerSets"] == number, status
        return True

    until(same, f"{number} ListenerSets of the Gateway")


@contextmanager
def removed(site: Site, *names: str) -> Iterator[None]:
    """Delete objects in a second namespace at the end."""
    try:
        yield
    finally:
        for name in names:
            site.delete(name)


@pytest.mark.conformance(
    "ListenerSetDefaultNotAllowed",
    "ListenerSetAllowedNamespaceNone",
    "ListenerSetAllowedNamespaceSame",
    "ListenerSetAllowedNamespaceSelector",
)
def test_a_gateway_allows_listener_sets_of_some_namespaces_and_by_default_of_none(site: Site) -> None:
    neighbor = site.neighbor()
    web = web_listener("web", "near.example")
    with removed(neighbor, "listenerset/far"):
        site.apply(edge_gateway(web_listener("own", "own.example")), listener_set("near", web))
        far = web_listener("web", "far.example")
        neighbor.apply(listener_set("far", far, namespace=site.namespace))
        wait_for_set(site, "near", NOT_ALLOWED)
        wait_for_set(neighbor, "far", NOT_ALLOWED)
        wait_for_number(site, 0)
        labels = {"matchLabels": {"kubernetes.io/metadata.name": neighbor.namespace}}
        for gateway, near, outside in (
            (shared_gateway("None"), NOT_ALLOWED, NOT_ALLOWED),
            (shared_gateway("Same"), ACTIVE, NOT_ALLOWED),
            (shared_gateway("Selector", selector=labels), NOT_ALLOWED, ACTIVE),
            (shared_gateway("All"), ACTIVE, ACTIVE),
        ):
            site.apply(gateway)
            wait_for_set(site, "near", near)
            wait_for_set(neighbor, "far", outside)
            wait_for_number(site, [near, outside].count(ACTIVE))
        assert listeners_of(neighbor, "far") == {"web": VALID}


@pytest.mark.conformance("ListenerSetHTTPRouting")
def test_a_route_applies_to_the_listeners_of_its_parents_only(site: Site) -> None:
    names = ("own", "first", "second")
    hosts = {name: [f"{name}-{number}.example" for number in (1, 2)] for name in names}
    web = {name: [web_listener(host.partition(".")[0], host) for host in hosts[name]] for name in names}
    everywhere = [{"name": "edge"}, at("first"), at("second")]
    rule = {"matches": [{"path": {"value": "/all"}}], "backendRefs": [{"name": "v1", "port": 8080}]}
    site.apply(
        shared_gateway("Same", *web["own"]),
        listener_set("first", *web["first"]),
        listener_set("second", *web["second"]),
        gateway_api_object("HTTPRoute", "all", {"parentRefs": everywhere, "rules": [rule]}),
        edge_route("own", rule_to("v2", path="/own")),
        edge_route("own-1", rule_to("v3", path="/own-1"), parent={"sectionName": "own-1"}),
        edge_route("first", rule_to("v2", path="/first"), parent=at("first")),
        edge_route("first-1", rule_to("v3", path="/first-1"), parent=at("first", sectionName="first-1")),
        edge_route("second", rule_to("v2", path="/second"), parent=at("second", port=PORT)),
    )
    address = site.accepted("own", "own-1", "first", "first-1", "second")
    assert [entry["parentRef"] for entry in site.status("httproute/all")["parents"]] == [
        {"group": GATEWAY_API, "kind": "Gateway", **ref} for ref in everywhere
    ]
    wait_for_number(site, 2)
    site.wait_for_attached({"own-1": 3, "own-2": 2})
    wait_for_routes(site, "first", {"first-1": 3, "first-2": 2})
    wait_for_routes(site, "second", {"second-1": 2, "second-2": 2})
    expected = {}
    for name in names:
        for number, host in enumerate(hosts[name], 1):
            expected |= {f"{host}/all": "v1"}
            expected |= {f"{host}/{path}": "v2" if path == name else "404" for path in names}
            expected |= {f"{host}/{path}-1": "v3" if (path, number) == (name, 1) else "404" for path in names[:2]}
    assert site.answers(address, *expected) == expected


@pytest.mark.conformance("ListenerSetHostnameConflict", "ListenerSetProtocolConflict")
def test_the_gateways_listeners_and_those_of_older_listener_sets_win_conflicts(site: Site) -> None:
    """Listeners on one port with another protocol, or with the same hostname, are in conflict."""
    taken = {"hostname": web_listener("own", "own.example"), "protocol": web_listener("own", protocol="TCP")}
    shared = {"hostname": web_listener("both", "both.example"), "protocol": web_listener("both", protocol="TCP")}
    lost = {"hostname": "HostnameConflict", "protocol": "ProtocolConflict"}
    for kind, reason in lost.items():
        site.apply(
            shared_gateway(),
            listener_set("a", web_listener("a", "a.example"), taken[kind], web_listener("both", "both.example")),
            listener_set("b", taken[kind]),
            listener_set("c", web_listener("c", "c.example"), shared[kind]),
            listener_set("d", shared[kind]),
            edge_route("a", rule_of("v1"), parent=at("a")),
            edge_route("c", rule_of("v2"), parent=at("c")),
            edge_route("own", rule_of("v3")),
        )
        wait_for_set(site, "a", PARTLY)
        wait_for_set(site, "b", INVALID)
        wait_for_set(site, "c", PARTLY)
        wait_for_set(site, "d", INVALID)
        assert listeners_of(site, "a") == {"a": VALID, "own": conflict(reason), "both": VALID}
        assert listeners_of(site, "b") == {"own": conflict(reason)}
        assert listeners_of(site, "c") == {"c": VALID, "both": conflict(reason)}
        assert listeners_of(site, "d") == {"both": conflict(reason)}
        assert site.listener("own")["conditions"] == VALID
        wait_for_number(site, 2)
        address = site.accepted("a", "c", "own")
        expected = {"a.example/": "v1", "both.example/": "v1", "c.example/": "v2", "own.example/": "v3"}
        assert site.answers(address, *expected) == expected


@pytest.mark.conformance("ListenerSetAllowedRoutesNamespaces")
def test_listeners_of_a_listener_set_allow_routes_of_some_namespaces(site: Site) -> None:
    """`Same` means the ListenerSet's namespace."""
    neighbor = site.neighbor()
    labels = {"matchLabels": {"kubernetes.io/metadata.name": neighbor.namespace}}
    sources = {"all": {"from": "All"}, "same": {"from": "Same"}, "some": {"from": "Selector", "selector": labels}}
    site.apply(
        shared_gateway("All"),
        listener_set(
            "near",
            *(
                web_listener(name, f"{name}.example", allowedRoutes={"namespaces": namespaces})
                for name, namespaces in sources.items()
            ),
        ),
        route_grant("backends", neighbor.namespace),
        edge_route("near", rule_to("v1", path="/near"), parent=at("near")),
        edge_route("refused", rule_to("v1"), parent=at("far", namespace=neighbor.namespace)),
    )
    far = {"backendRefs": [{"name": "v2", "namespace": site.namespace, "port": 8080}]}
    with removed(neighbor, "listenerset/far", "httproute/at-near", "httproute/at-far"):
        neighbor.apply(
            listener_set("far", web_listener("far", "far.example"), namespace=site.namespace),
            edge_route("at-near", far, parent=at("near", namespace=site.namespace)),
            edge_route("at-far", far, parent=at("far")),
        )
        for route in ("at-near", "at-far"):
            neighbor.wait_for_parent(f"httproute/{route}", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
        site.wait_for_parent("httproute/refused", Accepted="NotAllowedByListeners")
        wait_for_routes(site, "near", {"all": 2, "same": 1, "some": 1})
        wait_for_routes(neighbor, "far", {"far": 1})
        wait_for_number(site, 2)
        expected = {
            "all.example/near": "v1",
            "all.example/far": "v2",
            "same.example/near": "v1",
            "same.example/far": "404",
            "some.example/near": "v2",
            "far.example/": "v2",
        }
        assert site.answers(site.accepted("near"), *expected) == expected


@pytest.mark.conformance("ListenerSetAllowedRoutesSupportedKinds")
def test_a_listener_of_a_listener_set_reports_kinds_of_routes_that_it_cannot_have(site: Site) -> None:
    passing = {"protocol": "TLS", "tls": {"mode": "Passthrough"}}
    kinds = {"kinds": [{"kind": "HTTPRoute"}]}
    tls = [{"group": GATEWAY_API, "kind": "TLSRoute"}]
    site.apply(
        shared_gateway(),
        listener_set(
            "kinds",
            web_listener("bad", "bad.example", port=PORT + 1, allowedRoutes=kinds, **passing),
            web_listener("good", "good.example", port=PORT + 1, allowedRoutes={"kinds": tls}, **passing),
        ),
    )
    wait_for_set(site, "kinds", ACTIVE)
    entries = {entry["name"]: entry for entry in site.status("listenerset/kinds")["listeners"]}
    assert {name: entry["supportedKinds"] for name, entry in entries.items()} == {"bad": [], "good": tls}
    assert conditions(entries["bad"])["ResolvedRefs"] == ("False", "InvalidRouteKinds")
    assert conditions(entries["good"]) == VALID
    wait_for_number(site, 1)


@pytest.mark.conformance("ListenerSetReferenceGrant")
def test_a_grant_lets_listener_sets_of_a_namespace_use_a_certificate(site: Site) -> None:
    """A grant for the Gateway's namespace does not suffice."""
    neighbor = site.neighbor()
    reference = {"name": "ended", "namespace": site.namespace}
    secure = web_listener("secure", "secure.example", protocol="HTTPS", tls={"certificateRefs": [reference]})
    with removed(neighbor, "listenerset/far", "httproute/far"):
        site.apply(
            manifest(server_secret("ended", PAIRS["P-256"], namespace="")),
            shared_gateway("All", web_listener("own", port=PORT + 1)),
            route_grant("gateways", site.namespace, kind="Gateway", to="Secret"),
            route_grant("other", neighbor.namespace, kind="Gateway", to="Secret"),
            route_grant("backends", neighbor.namespace),
        )
        far = {"backendRefs": [{"name": "v1", "namespace": site.namespace, "port": 8080}]}
        neighbor.apply(listener_set("far", secure, namespace=site.namespace), edge_route("far", far, parent=at("far")))
        wait_for_set(neighbor, "far", INVALID)
        assert listeners_of(neighbor, "far")["secure"]["ResolvedRefs"] == ("False", "RefNotPermitted")
        site.apply(route_grant("certificate", neighbor.namespace, kind="ListenerSet", to="Secret"))
        wait_for_set(neighbor, "far", ACTIVE)
        assert listeners_of(neighbor, "far") == {"secure": VALID}
        neighbor.wait_for_parent("httproute/far", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
        assert site.ask_tls(site.accepted(), "secure.example", "secure.example") == "200"


@pytest.mark.conformance(
    "ListenerSetDualParentRefIndependence",
    "ListenerSetGatewayParentSectionNameNotFound",
    "ListenerSetRouteStatusScopedToParentRef",
)
def test_a_route_has_a_status_for_each_of_its_parents_and_for_no_other_one(site: Site) -> None:
    """A section of a ListenerSet is not a section of its Gateway."""
    missing = [{"name": "edge", "sectionName": "web"}, at("set")]
    rule = {"matches": [{"path": {"value": "/both"}}], "backendRefs": [{"name": "v2", "port": 8080}]}
    site.apply(
        shared_gateway(),
        listener_set("set", web_listener("web", "set.example")),
        edge_route("own", rule_to("v1", path="/own")),
        edge_route("lost", rule_to("v1", path="/lost"), parent={"sectionName": "web"}),
        edge_route("web", rule_to("v3", path="/web"), parent=at("set", sectionName="web")),
        gateway_api_object("HTTPRoute", "both", {"parentRefs": missing, "rules": [rule]}),
    )
    address = site.accepted("own", "web")
    site.wait_for_parent("httproute/lost", Accepted="NoMatchingParent")
    first, second = site.status("httproute/both")["parents"]
    assert (first["parentRef"]["kind"], conditions(first)["Accepted"]) == ("Gateway", ("False", "NoMatchingParent"))
    assert (second["parentRef"]["kind"], conditions(second)["Accepted"]) == ("ListenerSet", ("True", "Accepted"))
    site.wait_for_attached({"own": 1})
    wait_for_routes(site, "set", {"web": 2})
    expected = {
        "own.example/own": "v1",
        "set.example/own": "404",
        "own.example/web": "404",
        "set.example/web": "v3",
        "own.example/both": "404",
        "set.example/both": "v2",
        "own.example/lost": "404",
        "set.example/lost": "404",
    }
    assert site.answers(address, *expected) == expected


def test_the_listeners_of_a_deleted_listener_set_are_those_of_the_next_one(site: Site) -> None:
    """TCPRoutes and TLSRoutes attach to ListenerSets too; without its Gateway, a ListenerSet is not accepted."""
    site.start("tls", "tls-v1", port=PORT)
    raw, passing = (
        web_listener("raw", port=PORT + 1, protocol="TCP"),
        {"protocol": "TLS", "tls": {"mode": "Passthrough"}},
    )
    site.apply(
        shared_gateway(),
        listener_set("a", web_listener("web", "web.example")),
        listener_set("b", web_listener("web", "web.example"), raw, web_listener("tls", port=PORT + 2, **passing)),
        edge_route("a", rule_of("v1"), parent=at("a")),
        edge_route("b", rule_of("v2"), parent=at("b", sectionName="web")),
        edge_route("raw", rule_of("v3"), parent=at("b", sectionName="raw"), kind="TCPRoute"),
        edge_route("tls", rule_of("tls-v1", port=PORT), hosts=["tls.example"], parent=at("b"), kind="TLSRoute"),
    )
    address = site.accepted("a", "b", "tcproute/raw", "tlsroute/tls")
    assert site.answers(address, "web.example/") == {"web.example/": "v1"}
    assert site.answers(address._replace(port=PORT + 1), "any/") == {"any/": "v3"}
    assert site.greeting(address._replace(port=PORT + 2), "tls.example") == "db: tls-v1"
    site.delete("listenerset/a")
    wait_for_set(site, "b", ACTIVE)
    site.host.settle()
    assert site.answers(address, "web.example/") == {"web.example/": "v2"}
    site.wait_for_parent("httproute/a", Accepted="NoMatchingParent")
    site.delete("gateway/edge")
    wait_for_set(site, "b", dict.fromkeys(("Accepted", "Programmed"), ("False", "NoMatchingParent")))
