"""ListenerSets: which listeners are added to which Gateway, and that an incremental compilation equals a complete one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.gateway_api.gateway_worlds import gateway_worlds
from tests.compiler.gateway_api.route_meshes import edge, edge_route, ref, services
from tests.make.objects import GATEWAY_API, Object, listener, obj, route, rule

from headgate.compiler.compile import Compiler, compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.plane.feed import snapshot_of, with_objects
from headgate.resources.meta import Key
from headgate.resources.registry import key_of
from headgate.settings import Settings

SETTINGS = Settings()


def snapshot(*objects: Object) -> Snapshot:
    """Return a snapshot of some objects."""
    return snapshot_of({key_of(obj): obj for obj in objects})


def listener_set(name: str, *hosts: str, created: str = "", parent: str = "edge", **more: Any) -> Object:
    """Return a ListenerSet of the Gateway `edge` with an HTTP listener for each host."""
    listeners = [listener(name=f"l{index}", hostname=host, **more) for index, host in enumerate(hosts)]
    spec = {"parentRef": {"name": parent}, "listeners": listeners}
    return obj("ListenerSet", name, spec=spec, metadata={"creationTimestamp": created} if created else {})


def open_gateway(source: str = "Same") -> Object:
    """Return the Gateway `edge` with a listener for `own.example`."""
    gateway = edge("own.example")
    return {**gateway, "spec": {**gateway["spec"], "allowedListeners": {"namespaces": {"from": source}}}}


def served(compiled: Compiled) -> set[str]:
    """Return the hosts of the Gateway's ports."""
    return {host for port in compiled.mesh.gateways for host in port.hosts}


def by_set(compiled: Compiled) -> dict[str, list[bool]]:
    """Return which listeners of each ListenerSet are served."""
    outcomes = (outcome for outcome in compiled.report.gateways if outcome.about.kind == "ListenerSet")
    return {outcome.about.name: [entry.is_served for entry in outcome.listeners] for outcome in outcomes}


def test_the_oldest_listener_set_wins_then_the_first_by_name():
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    compiled = compile_mesh(
        snapshot(
            open_gateway(),
            listener_set("a", "a.example", "own.example", created=new),
            listener_set("b", "a.example", "b.example", created=new),
            listener_set("c", "b.example", created=old),
        ),
        SETTINGS,
    )
    assert by_set(compiled) == {"a": [True, False], "b": [False, False], "c": [True]}
    assert served(compiled) == {"own.example", "a.example", "b.example"}


def test_a_listener_that_cannot_be_served_keeps_its_hostname():
    """Otherwise a younger ListenerSet would get the requests of a name whose certificate is missing for a moment."""
    secure = {"number": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "missing"}]}}
    plain = {"number": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    compiled = compile_mesh(
        snapshot(open_gateway(), listener_set("a", "a.example", **secure), listener_set("b", "a.example", **plain)),
        SETTINGS,
    )
    assert by_set(compiled) == {"a": [False], "b": [False]}


def test_the_listener_sets_of_another_controllers_gateway_have_no_status():
    foreign = obj("GatewayClass", "other", namespace="", spec={"controllerName": "example.com/other"})
    gateway = {**open_gateway(), "spec": {**open_gateway()["spec"], "gatewayClassName": "other"}}
    shop = route("shop", rule({"v1": 1}), parents=[{"kind": "ListenerSet", "name": "a"}])
    compiled = compile_mesh(snapshot(foreign, gateway, listener_set("a", "a.example"), shop), SETTINGS)
    assert not compiled.report.gateways
    assert not compiled.report.parents
    assert not [finding for finding in compiled.report.findings if finding.about.kind == "ListenerSet"]


@pytest.mark.parametrize(
    "namespaces",
    [{"from": "Selector"}, {"from": "Any"}, {"from": "Selector", "selector": 1}],
    ids=["no selector", "unknown", "no object"],
)
def test_a_gateway_with_a_mistake_in_allowed_listeners_serves_its_own_listeners_only(namespaces: Any):
    gateway = open_gateway()
    gateway["spec"]["allowedListeners"] = {"namespaces": namespaces}
    compiled = compile_mesh(snapshot(gateway, listener_set("a", "a.example")), SETTINGS)
    assert served(compiled) == {"own.example"}
    reasons = {(finding.about.kind, finding.reason.value) for finding in compiled.report.findings}
    assert reasons == {("Gateway", "FieldIgnored"), ("ListenerSet", "NotAllowed")}


def test_a_comparison_without_a_number_selects_no_listener_sets():
    gateway = open_gateway()
    selector = {"matchExpressions": [{"key": "tier", "operator": "Gt"}]}
    gateway["spec"]["allowedListeners"] = {"namespaces": {"from": "Selector", "selector": selector}}
    home = obj("Namespace", "default", namespace="", version="v1", labels={"tier": "5"})
    assert served(compile_mesh(snapshot(home, gateway, listener_set("a", "a.example")), SETTINGS)) == {"own.example"}


def test_a_mistake_in_the_tls_settings_of_a_gateway_closes_its_ports():
    """Otherwise clients without a certificate could pass."""
    gateway = open_gateway()
    gateway["spec"]["tls"] = {"frontend": {"default": {"validation": {"mode": "AllowValidOnly"}}}}
    assert not compile_mesh(snapshot(gateway), SETTINGS).mesh.gateways


def test_the_status_of_a_listener_set_is_written_for_gateways_of_headgate_only():
    """The controller of a Gateway that is missing or not valid is not known; another parent is of another controller."""
    service = listener_set("service", "s.example")
    service["spec"]["parentRef"] = {"group": "", "kind": "Service", "name": "x"}
    invalid = open_gateway()
    invalid = {**invalid, "metadata": {**invalid["metadata"], "name": "odd"}, "spec": {"gatewayClassName": 1}}
    sets = listener_set("missing", "m.example", parent="gone"), listener_set("invalid", "i.example", parent="odd")
    compiled = compile_mesh(
        snapshot(invalid, open_gateway("None"), service, *sets, listener_set("a", "a.example")), SETTINGS
    )
    withdrawn = {outcome.about.name: outcome.withdraws for outcome in compiled.report.gateways}
    assert {name: withdrawn.get(name) for name in ("a", "missing", "invalid", "service")} == {
        "a": False,
        "missing": True,
        "invalid": True,
        "service": None,
    }
    messages = {
        finding.about.name: finding.message
        for finding in compiled.report.findings
        if finding.about.kind == "ListenerSet"
    }
    assert messages.keys() == {"missing", "invalid", "a"}
    assert messages["missing"].startswith("Gateway default/gone not found, ")
    assert messages["invalid"].startswith("Gateway default/odd is not valid, ")


def test_a_change_to_one_listener_set_leaves_the_results_of_other_ones():
    """The routes of another ListenerSet, and the hosts of its listeners, are the same objects as before (rule 5)."""
    compiler = Compiler()
    parents = {name: [{"kind": "ListenerSet", "name": name}] for name in ("a", "b")}
    routes = [route(name, {"backendRefs": [ref("v1")]}, parents=parents[name]) for name in parents]
    objects = [open_gateway(), *services("v1"), *routes, listener_set("a", "a.example", "x.example")]
    first = snapshot(*objects, listener_set("b", "b.example"))
    before = compiler.compile(first, SETTINGS)
    changed = listener_set("b", "c.example")
    after = compiler.compile(with_objects(first, {key_of(changed): changed}), SETTINGS)
    (old,), (new,) = before.mesh.gateways, after.mesh.gateways
    assert old.hosts["a.example"] is new.hosts["a.example"]
    assert {*new.hosts} == {"own.example", "a.example", "x.example", "c.example"}
    about = {name: Key(GATEWAY_API, "HTTPRoute", "default", name) for name in ("a", "b")}
    assert before.report.parents_of[about["a"]] is after.report.parents_of[about["a"]]
    assert before.report.parents_of[about["b"]] != after.report.parents_of[about["b"]]
    same = [outcome for outcome in after.report.gateways if any(outcome is older for older in before.report.gateways)]
    assert [outcome.about.name for outcome in same] == ["edge", "a"]


@settings(max_examples=20)
@given(gateway_worlds(), gateway_worlds(), st.data())
def test_after_changes_the_result_is_that_of_a_complete_compilation(first, second, data):
    """Objects are replaced, added and deleted."""
    compiler, before = Compiler(), snapshot_of(first)
    compiler.compile(before, SETTINGS)
    keys = data.draw(st.lists(st.sampled_from(sorted({*first, *second})), unique=True))
    after = with_objects(before, {key: second.get(key) for key in keys})
    changed, complete = compiler.compile(after, SETTINGS), compile_mesh(after, SETTINGS)
    assert changed.mesh == complete.mesh
    assert changed.report == complete.report


def test_a_route_of_the_gateway_does_not_apply_to_its_listener_sets():
    compiled = compile_mesh(
        snapshot(
            open_gateway(), *services("v1"), listener_set("a", "a.example"), edge_route({"backendRefs": [ref("v1")]})
        ),
        SETTINGS,
    )
    (port,) = compiled.mesh.gateways
    assert {host: len(routes.routes) for host, routes in port.hosts.items()} == {"own.example": 1, "a.example": 0}
