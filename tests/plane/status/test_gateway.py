"""The statuses of Gateways, GatewayClasses and routes: conditions for each parent and listener."""

import asyncio
from typing import Any

import pytest
from msgspec import structs
from tests.identity.fakes import FakeIssuer, Time
from tests.make.objects import Object, external_backend, gateway, listener, obj, route
from tests.watching import until
from tests.xds.client import XdsClient

from headgate.compiler.reasons import Reason
from headgate.compiler.report import (
    Compiled,
    Finding,
    GatewayOutcome,
    ListenerOutcome,
    ParentStatus,
    Report,
    StatusCondition,
)
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, SCOPES, SECRET, Encoded
from headgate.identity.credentials import Credentials
from headgate.kinds import GATEWAY
from headgate.latest import Latest
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.identities import PrivateText
from headgate.model.routing import GatewayPort, Mesh, PortRef
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Ports
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.loop import Loop
from headgate.plane.status.conditions import ObjectReport, StatusInputs
from headgate.plane.status.findings import refusals
from headgate.plane.status.gateway_api import (
    backend_status,
    class_status,
    differ_in_counts_only,
    gateway_status,
    mesh_features,
    route_status,
)
from headgate.plane.status.receipts import Receipts
from headgate.plane.status.writer import CountedStates, StatusWriter
from headgate.resources.gateway_api.routes import PROGRAMMED_AT_PARENT
from headgate.resources.meta import Key
from headgate.resources.registry import BACKEND, SERVICE, key_of
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet, FleetProxy

CONTROLLER = "headgate.dev/gateway-controller"
EDGE = Key(GATEWAY, "Gateway", "default", "edge")
WEB = Key(GATEWAY, "HTTPRoute", "default", "web")
ACCEPTED = StatusCondition(type="Accepted", status=True, reason="Accepted", message="fine")
NAME = "gateway/default/edge/80"
HOST = f"{NAME}/shop.example"


def web_route(*parents: dict[str, Any], **status: Any) -> Object:
    return route("web", parents=parents or [{"name": "edge"}], metadata={"generation": 3}, **status)


def edge_gateway() -> Object:
    listeners = listener(), listener(81, "other", protocol="FTP")
    address = {"type": "IPAddress", "value": "127.77.0.1"}
    return gateway("edge", *listeners, metadata={"generation": 1}, status={"addresses": [address]})


def parent(index: int = 0, *conditions: StatusCondition, **fields: Any) -> ParentStatus:
    base = ParentStatus(
        about=WEB,
        index=index,
        parent=EDGE,
        gateway="default/edge",
        conditions=conditions or (ACCEPTED,),
        gateway_hosts=((80, ""),),
    )
    return structs.replace(base, **fields)


def said(*parents: ParentStatus, generation: int = 3) -> ObjectReport:
    return ObjectReport(generation=generation, parents=parents)


def proxy(*, holds: bool = True, refuses: str = "") -> FleetProxy:
    """Return a proxy that has acknowledged a Gateway's listener, scope and cluster, or rejected the scope."""
    found, body = FleetProxy("gateway"), Encoded(b"x", "1")
    routed = Encoded(b"x", "1", frozenset({"c"}))
    found.config.set({SCOPES: {HOST: routed}, LISTENER: {NAME: body}, CLUSTER: {"c": body}, ENDPOINTS: {"c": body}})
    if holds or refuses:
        XdsClient(found).take(refuse={(SCOPES, HOST): refuses} if refuses else {})
    return found


def present(*proxies: FleetProxy, time: str = "2026-01-01T00:00:00Z") -> StatusInputs:
    return StatusInputs(Receipts(proxies), time)


def conditions(entry: Any) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in entry["conditions"]}


def test_a_route_has_an_entry_for_each_parent() -> None:
    refused = StatusCondition(type="Accepted", status=False, reason="NoMatchingParent", message="no such listener")
    obj = web_route({"name": "edge", "sectionName": "a"}, {"name": "web", "kind": "Service", "group": ""})
    status = route_status(obj, said(parent(0, refused), parent(1)), present(proxy()))
    assert status
    first, second = status["parents"]
    assert first["parentRef"] == {"group": GATEWAY, "kind": "Gateway", "name": "edge", "sectionName": "a"}
    assert first["controllerName"] == CONTROLLER
    assert conditions(first) == {"Accepted": ("False", "NoMatchingParent"), PROGRAMMED_AT_PARENT: ("False", "Invalid")}
    assert second["parentRef"] == {"group": "", "kind": "Service", "name": "web"}
    assert conditions(second) == {"Accepted": ("True", "Accepted"), PROGRAMMED_AT_PARENT: ("True", "Programmed")}
    assert {item["observedGeneration"] for item in second["conditions"]} == {3}


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [
        ([proxy()], ("True", "Programmed")),
        ([proxy(holds=False)], ("False", "Pending")),
        ([proxy(refuses="bad route")], ("False", "EnvoyRejected")),
        ([], ("False", "NoProxies")),
    ],
)
def test_programmed_counts_the_proxies_acknowledgments(proxies, expected) -> None:
    for place in ({}, {"ports": (PortRef("default/web", 80),), "gateway_hosts": ((80, ""),)}):
        status = route_status(web_route(), said(parent(**place)), present(*proxies))
        assert status
        assert conditions(status["parents"][0])[PROGRAMMED_AT_PARENT] == expected


def test_a_route_whose_parent_has_no_port_is_not_programmed() -> None:
    status = route_status(web_route(), said(parent(gateway_hosts=())), present(proxy()))
    assert status
    assert conditions(status["parents"][0])[PROGRAMMED_AT_PARENT] == ("False", "Invalid")


def test_status_entries_of_other_controllers_stay_unchanged() -> None:
    foreign = {"parentRef": {"name": "theirs"}, "controllerName": "example.com/other", "conditions": []}
    ours = {"parentRef": {"name": "gone"}, "controllerName": CONTROLLER, "conditions": []}
    status = route_status(web_route(status={"parents": [ours, foreign]}), said(parent()), present(proxy()))
    assert status
    assert [entry["controllerName"] for entry in status["parents"]] == ["example.com/other", CONTROLLER]
    assert status["parents"][0] == foreign
    left = route_status(web_route(status={"parents": [ours, foreign]}), said(), present(proxy()))
    assert left == {"parents": [foreign]}


def test_a_condition_keeps_its_transition_time_while_its_status_is_the_same() -> None:
    first = route_status(web_route(), said(parent()), present(proxy(holds=False), time="2026-01-01T00:00:00Z"))
    second = route_status(web_route(status=first), said(parent()), present(proxy(), time="2026-02-02T00:00:00Z"))
    assert second
    times = {item["type"]: item["lastTransitionTime"] for item in second["parents"][0]["conditions"]}
    assert times == {"Accepted": "2026-01-01T00:00:00Z", PROGRAMMED_AT_PARENT: "2026-02-02T00:00:00Z"}


def test_the_status_of_a_route_stays_unchanged_until_its_new_generation_is_compiled() -> None:
    assert route_status(web_route(), said(parent(), generation=2), present(proxy())) is None
    assert route_status(web_route(), said(), present(proxy())) is None


NOWHERE = StatusCondition(type="Programmed", status=False, reason="AddressNotAssigned", message="no address yet")
WAITING = StatusCondition(type="Programmed", status=False, reason="Pending", message="the Gateway has no address yet")


def outcome(*conditions: StatusCondition) -> GatewayOutcome:
    unserved = StatusCondition(type="Programmed", status=False, reason="Invalid", message="not served")
    refused = StatusCondition(type="Accepted", status=False, reason="UnsupportedProtocol", message="FTP")
    served = (ACCEPTED, WAITING) if NOWHERE in conditions else (ACCEPTED,)
    listeners = (
        listener_outcome("http", 80, *served, attached=2, kinds=((GATEWAY, "HTTPRoute"),)),
        listener_outcome("other", 81, refused, unserved, is_served=False),
    )
    return GatewayOutcome(
        about=EDGE, gateway="default/edge", sets=3, ports=(80,), listeners=listeners, conditions=conditions
    )


def listener_outcome(name: str, port: int, *conditions: StatusCondition, **fields: Any) -> ListenerOutcome:
    base = ListenerOutcome(
        name=name, port=port, host="*", is_served=True, secrets=(), attached=0, kinds=(), conditions=conditions
    )
    return structs.replace(base, **fields)


def test_the_status_of_a_gateway_lists_each_listener() -> None:
    status = gateway_status(edge_gateway(), ObjectReport(generation=1, gateway=outcome(ACCEPTED)), present(proxy()))
    assert status
    assert status["addresses"] == [{"type": "IPAddress", "value": "127.77.0.1"}]
    assert status["attachedListenerSets"] == 3
    assert conditions(status) == {"Accepted": ("True", "Accepted"), "Programmed": ("True", "Programmed")}
    first, second = status["listeners"]
    assert (first["name"], first["attachedRoutes"]) == ("http", 2)
    assert first["supportedKinds"] == [{"group": GATEWAY, "kind": "HTTPRoute"}]
    assert conditions(first)["Programmed"] == ("True", "Programmed")
    assert conditions(second) == {"Accepted": ("False", "UnsupportedProtocol"), "Programmed": ("False", "Invalid")}


def test_a_gateway_without_an_address_is_not_programmed() -> None:
    """Its valid listeners wait for the address."""
    status = gateway_status(
        edge_gateway(), ObjectReport(generation=1, gateway=outcome(ACCEPTED, NOWHERE)), present(proxy())
    )
    assert status
    assert conditions(status)["Programmed"] == ("False", "AddressNotAssigned")
    first, second = status["listeners"]
    assert conditions(first)["Programmed"] == ("False", "Pending")
    assert conditions(second)["Programmed"] == ("False", "Invalid")


@pytest.mark.parametrize("reason", [Reason.INVALID, Reason.NO_RESOURCES, Reason.OBJECT_REJECTED])
def test_a_gateway_whose_objects_the_cluster_rejects_is_not_programmed(reason: Reason) -> None:
    """A missing address is then a consequence. The listeners agree, except with a reason of their own."""
    rejected = Finding(EDGE, reason, "", "exceeded quota")
    for conditions_of_compiler in ((ACCEPTED,), (ACCEPTED, NOWHERE)):
        report = ObjectReport(generation=1, gateway=outcome(*conditions_of_compiler), findings=(rejected,))
        status = gateway_status(edge_gateway(), report, present(proxy()))
        assert status
        assert conditions(status) == {"Accepted": ("True", "Accepted"), "Programmed": ("False", reason.value)}
        assert status["conditions"][1]["message"] == "exceeded quota"
        served, unserved = status["listeners"]
        assert conditions(served) == conditions(status)
        assert conditions(unserved)["Programmed"] == ("False", "Invalid")
    recovered = ObjectReport(generation=1, gateway=outcome(ACCEPTED))
    after = gateway_status({**edge_gateway(), "status": status}, recovered, present(proxy()))
    assert after
    assert conditions(after)["Programmed"] == conditions(after["listeners"][0])["Programmed"] == ("True", "Programmed")


def test_a_gateway_without_a_proxy_is_pending() -> None:
    status = gateway_status(edge_gateway(), ObjectReport(generation=1, gateway=outcome(ACCEPTED)), present())
    assert status
    assert conditions(status)["Programmed"] == conditions(status["listeners"][0])["Programmed"] == ("False", "Pending")


def test_gateways_and_classes_of_other_controllers_get_no_status() -> None:
    assert gateway_status(edge_gateway(), ObjectReport(generation=1), present(proxy())) is None
    theirs = {"metadata": {"name": "x"}, "spec": {"controllerName": "example.com/other"}}
    assert class_status(theirs, ObjectReport(generation=1), present()) is None


def test_a_class_lists_its_features_in_the_order_of_their_names() -> None:
    """GEP-2162; the conformance suite runs the tests of these features."""
    ours = {"metadata": {"name": "headgate"}, "spec": {"controllerName": CONTROLLER}}
    status = class_status(ours, ObjectReport(generation=1), present())
    assert status
    names = [feature["name"] for feature in status["supportedFeatures"]]
    assert names == sorted(names)
    assert {"Gateway", "HTTPRoute", "HTTPRouteCORS"} <= {*names}


async def written(store: MemoryStore, key: Key) -> dict[str, Any]:
    async def status() -> Any:
        return (await store.get(key)).get("status")

    return dict(await until(store, status, 60))


async def test_the_writer_writes_the_status_of_all_kinds() -> None:
    store, fleet = MemoryStore(), Fleet()
    ours = {"apiVersion": f"{GATEWAY}/v1", "kind": "GatewayClass", "spec": {"controllerName": CONTROLLER}}
    made = [
        await store.create(obj) for obj in (web_route(), edge_gateway(), {**ours, "metadata": {"name": "headgate"}})
    ]
    keys = [key_of(obj) for obj in made]
    compiled = Compiled(
        revision=1,
        mesh=Mesh(domain="cluster.local"),
        report=Report(
            seen=dict.fromkeys(keys, 1), parents_of={parent().about: (parent(),)}, gateways=(outcome(ACCEPTED),)
        ),
    )
    credentials = Credentials(FakeIssuer(Time()), Time().schedule())
    loop = Loop(Latest(None), fleet, HostProxies(), Settings(), credentials)
    loop.compiled.set(compiled)
    ports = Ports(store, EventRecorder(store, "headgate"), Latest(value=True))
    counted = CountedStates(Latest({}), Latest({}), Latest({}))
    work = asyncio.create_task(StatusWriter(ports, loop, fleet, counted, Feed(store)).run())
    first, second, third = [await written(store, key) for key in keys]
    assert conditions(first["parents"][0])[PROGRAMMED_AT_PARENT] == ("False", "NoProxies")
    assert conditions(second["listeners"][0])["Accepted"] == ("True", "Accepted")
    assert conditions(third) == {"Accepted": ("True", "Accepted")}
    work.cancel()


async def test_a_refused_resource_is_a_finding_about_its_gateway_or_route() -> None:
    fleet = Fleet()
    held = fleet.expect("gateway")
    rule = "gateway/default/edge/80/HTTPRoute/default/web/0"
    body = Encoded(b"x", "1")
    held.config.set({SCOPES: {HOST: body}, CLUSTER: {rule: body, "split/default/web/80/default/v1": body}})
    refused = (SCOPES, HOST), (CLUSTER, rule), (CLUSTER, "split/default/web/80/default/v1")
    XdsClient(held).take(refuse=dict.fromkeys(refused, "bad"))
    compiled = Compiled(revision=1, mesh=Mesh(domain="cluster.local"), report=Report(seen={}))
    assert {item.about for item in refusals(compiled, fleet.connected())} == {EDGE, WEB, SERVICE.key("default", "web")}


@pytest.mark.parametrize("name", ["mirror/default/api.xbackend/443", "auth/default/api.xbackend/443"])
async def test_a_refused_cluster_of_a_server_outside_the_mesh_is_a_finding_about_its_xbackend(name: str) -> None:
    fleet = Fleet()
    held = fleet.expect("gateway")
    held.config.set({CLUSTER: {name: Encoded(b"x", "1")}})
    XdsClient(held).take(refuse={(CLUSTER, name): "bad"})
    compiled = Compiled(revision=1, mesh=Mesh(domain="cluster.local"), report=Report(seen={}))
    assert [item.about for item in refusals(compiled, fleet.connected())] == [BACKEND.key("default", "api")]


async def test_a_refused_certificate_is_a_finding_about_its_gateway_or_listener_set() -> None:
    fleet = Fleet()
    held = fleet.expect("gateway")
    held.config.set({SECRET: {"secret/certs/wild": Encoded(b"x", "1")}})
    XdsClient(held).take(refuse={(SECRET, "secret/certs/wild"): "Failed to load certificate chain from <inline>"})
    wild = ListenerCertificate(secret="certs/wild", chain="no chain", key=PrivateText("no key"))
    port = GatewayPort(gateway="default/edge", address="127.0.0.5", port=443, tls=(("*.example", wild),))
    mesh = Mesh(domain="cluster.local", gateways=(port,))
    secure = listener_outcome("https", 443, secrets=("certs/wild",))
    for about in (EDGE, Key(GATEWAY, "ListenerSet", "default", "team")):
        owner = structs.replace(outcome(ACCEPTED), about=about, listeners=(secure,))
        compiled = Compiled(revision=1, mesh=mesh, report=Report(seen={}, gateways=(owner,)))
        assert [item.about for item in refusals(compiled, fleet.connected())] == [about]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"listeners": [{"name": "http", "attachedRoutes": 2}]}, True),
        ({"listeners": [{"name": "http", "attachedRoutes": 1}]}, False),
        ({"listeners": [{"name": "https", "attachedRoutes": 2}]}, False),
        ({"listeners": []}, False),
        (None, False),
    ],
)
def test_differ_in_counts_only_is_true_only_for_the_numbers_of_attached_routes(other: object, expected: bool) -> None:
    assert differ_in_counts_only({"listeners": [{"name": "http", "attachedRoutes": 1}]}, other) == expected


def test_a_backend_outside_has_a_status_at_each_parent_and_keeps_those_of_other_controllers() -> None:
    """GEP-4488: the parents are the Gateways and Services whose accepted routes lead to it."""
    foreign = {"controllerName": "example.com/other", "parentRef": {"name": "edge"}, "conditions": []}
    backend = external_backend("api", "api.example.com")
    backend["metadata"]["generation"] = 3
    backend["status"] = {"parents": [foreign]}
    key = key_of(backend)
    refused = StatusCondition(type="Accepted", status=False, reason="NoMatchingParent", message="no")
    web = parent(
        1, parent=SERVICE.key("default", "web"), gateway="", gateway_hosts=(), ports=(PortRef("default/web", 80),)
    )
    routes = (parent(), parent(), web, parent(2, refused, parent=SERVICE.key("default", "other")))
    fault = Finding(key, Reason.UNSUPPORTED_VALUE, "spec.tls.mode", "not supported")
    report, inputs = ObjectReport(generation=3, routes=routes), StatusInputs(Receipts([]), "now")
    status = backend_status(backend, report, inputs)
    assert status
    other, service, edge = status["parents"]
    assert other == foreign
    assert service["parentRef"] == {"group": "", "kind": "Service", "namespace": "default", "name": "web"}
    assert edge["parentRef"] == {"group": GATEWAY, "kind": "Gateway", "namespace": "default", "name": "edge"}
    assert [(row["type"], row["status"]) for row in edge["conditions"]] == [
        ("Accepted", "True"),
        ("ResolvedRefs", "True"),
        (PROGRAMMED_AT_PARENT, "False"),
    ]
    failing = backend_status(backend, structs.replace(report, findings=(fault,)), inputs)
    assert failing
    assert failing["parents"][2]["conditions"][0]["reason"] == "UnsupportedValue"
    unresolved = Finding(key, Reason.NAME_NOT_RESOLVED, "spec.hostname", "not resolved")
    failing = backend_status(backend, structs.replace(report, findings=(unresolved,)), inputs)
    assert failing
    conditions = failing["parents"][2]["conditions"]
    assert [(row["status"], row["reason"]) for row in conditions[1:]] == [
        ("True", "ResolvedRefs"),
        ("False", "NameNotResolved"),
    ]
    assert backend_status(backend, structs.replace(report, generation=2), inputs) is None


def test_a_mesh_of_headgate_lists_its_features_and_one_of_another_controller_is_left_alone() -> None:
    """GEP-3949."""
    mesh = obj("XMesh", "mesh", namespace="", spec={"controllerName": "headgate.dev/mesh-controller"})
    report, inputs = ObjectReport(generation=1), StatusInputs(Receipts([]), "now")
    status = mesh_features(mesh, report, inputs)
    assert status
    assert [(row["type"], row["status"]) for row in status["conditions"]] == [("Accepted", "True")]
    assert {"Mesh", "MeshConsumerRoute", "HTTPRoute"} <= {feature["name"] for feature in status["supportedFeatures"]}
    assert "ListenerSet" not in {feature["name"] for feature in status["supportedFeatures"]}
    parameters = {"group": "", "kind": "ConfigMap", "name": "parameters"}
    with_parameters = {**mesh, "spec": {**mesh["spec"], "parametersRef": parameters}}
    refused = mesh_features(with_parameters, report, inputs)
    assert refused
    assert [(row["status"], row["reason"]) for row in refused["conditions"]] == [("False", "InvalidParameters")]
    assert mesh_features({**mesh, "spec": {"controllerName": "example.com/other"}}, report, inputs) is None
