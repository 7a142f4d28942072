"""The objects around unchanged routes that cause a change to requests, and the command that explains an example."""

from pathlib import Path

import pytest
from tests.make.objects import (
    backed_service,
    gateway,
    grant,
    listener,
    manifest,
    obj,
    route,
    rule,
    traffic_policy,
    with_spec,
)
from tests.plan.manifests import planned


def policy(name: str) -> str:
    """Return an XBackendTrafficPolicy with sessions for the Service of the same name."""
    return manifest(traffic_policy(name, name, sessionPersistence={"sessionName": "user"}))


def backend_tls(hostname: str) -> str:
    """Return the BackendTLSPolicy of the Service `safe`, whose authorities are in the ConfigMap `ca`."""
    validation = {"hostname": hostname, "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    target = {"group": "", "kind": "Service", "name": "safe"}
    return manifest(with_spec("BackendTLSPolicy", "safe", {"targetRefs": [target], "validation": validation}, {}))


GRANT = manifest(
    grant("all", ("gateway.networking.k8s.io", "HTTPRoute", "default"), ("", "Service"), namespace="other")
)
LISTENERS = manifest(
    with_spec(
        "ListenerSet",
        "team",
        {"parentRef": {"name": "edge"}, "listeners": [listener(8000, "team", hostname="team.example")]},
        {},
    )
)
AT_EDGE = [{"name": "edge"}]
BASE = [
    manifest(*backed_service("web", ("web-1", "10.1.0.1"))),
    manifest(*backed_service("safe", ("safe-1", "10.1.0.2"), app="https")),
    manifest(*backed_service("pay", ("pay-1", "10.1.0.3"), namespace="other")),
    manifest(*backed_service("third", ("third-1", "10.1.0.4"))),
    manifest(gateway("edge", listener(8000), allowedListeners={"namespaces": {"from": "Same"}})),
    manifest(
        route("web", rule({"web": 1}), parents=AT_EDGE, hostnames=["web.example"]),
        route("safe", rule({"safe": 1}), parents=AT_EDGE, hostnames=["safe.example"]),
        route(
            "pay",
            {"backendRefs": [{"name": "pay", "namespace": "other", "port": 8080}]},
            parents=AT_EDGE,
            hostnames=["pay.example"],
        ),
        route("team", rule({"web": 1}), parents=[{"kind": "ListenerSet", "name": "team"}]),
    ),
]


@pytest.mark.parametrize(
    ("added", "host", "cause"),
    [
        (policy("web"), "web.example", "XBackendTrafficPolicy default/web"),
        (backend_tls("safe.example"), "safe.example", "BackendTLSPolicy default/safe"),
        (GRANT, "pay.example", "ReferenceGrant other/all"),
        (LISTENERS, "team.example", "ListenerSet default/team"),
    ],
)
def test_what_an_object_changes_at_routes_that_stay_as_they_are_names_it(
    tmp_path: Path, added: str, host: str, cause: str
) -> None:
    changes = planned(tmp_path, BASE, [*BASE, added, policy("third")]).requests
    at_gateway = [change for change in changes if change.entry.kind == "Gateway" and change.entry.host == host]
    assert [[str(origin.object) for origin in change.causes] for change in at_gateway] == [[cause]]
    assert at_gateway[0].command == f"headgate explain http://{host}:8000/ --via gateway/edge -n default"


def test_the_only_changed_object_is_the_cause(tmp_path: Path) -> None:
    """A Namespace's labels decide which routes a listener takes, and nothing in the routes names them."""
    selector = {"matchLabels": {"team": "a"}}
    allowed = {"namespaces": {"from": "Selector", "selector": selector}}
    base = [
        BASE[0],
        manifest(gateway("edge", listener(8000, allowedRoutes=allowed))),
        manifest(route("web", rule({"web": 1}), parents=AT_EDGE)),
    ]
    labelled, other = (manifest(obj("Namespace", "default", labels={"team": team})) for team in "ab")
    (change,) = planned(tmp_path, [*base, other], [*base, labelled]).requests
    assert [str(origin.object) for origin in change.causes] == ["Namespace default"]


def test_the_example_of_a_usual_port_has_no_port(tmp_path: Path) -> None:
    base = [*BASE[:4], manifest(gateway("edge", listener(80)))]
    routed = manifest(route("web", rule({"web": 1}), parents=AT_EDGE, hostnames=["web.example"]))
    (change,) = planned(tmp_path, base, [*base, routed]).requests
    assert change.command == "headgate explain http://web.example/ --via gateway/edge -n default"


def test_the_example_of_a_tcp_listener_has_its_port(tmp_path: Path) -> None:
    base = [
        manifest(*backed_service("sql", ("sql-1", "10.1.0.1"), app="tcp")),
        manifest(gateway("edge", listener(5432, "sql", protocol="TCP"))),
    ]
    routed = manifest(route("sql", rule({"sql": 1}), parents=AT_EDGE, kind="TCPRoute"))
    (change,) = planned(tmp_path, base, [*base, routed]).requests
    assert change.command == "headgate explain http://other.example:5432/ --via gateway/edge -n default"
