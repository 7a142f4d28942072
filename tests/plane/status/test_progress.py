"""The proxies for which the condition Programmed waits, with configurations from the real encoder (R19, D21)."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.make.objects import backed_service, meshed_pod, smi_tcp_route, split, tcp_rule, traffic_target
from tests.make.values import compiled
from tests.xds.client import XdsClient, outdate

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, SCOPES, SECRET, TypeUrl
from headgate.envoy.encode import Memo, encode
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.envoy.view import Node, project, sidecar
from headgate.model.identities import Credential, PrivateText
from headgate.model.routing import PortRef
from headgate.plane.status.conditions import conditions, few, programmed
from headgate.plane.status.findings import refusals
from headgate.plane.status.receipts import Progress, Receipts
from headgate.resources.meta import Key
from headgate.resources.registry import POD
from headgate.xds.fleet import Fleet

CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
WEB, RAW = PortRef("default/web", 8080), PortRef("default/raw", 9000)
SPLIT = split("raw", {"one": 1})
RAW_PORT = {"number": 9000, "app": "tcp"}
SERVER, CLIENT = "sidecar/default/server", "sidecar/default/client"


def objects(kind: str = "transparent", *, headless: bool = False) -> Iterable[Any]:
    ports = {"annotations": {"headgate.dev/application-ports": "8080=20000,9000=20001"}} if kind == "explicit" else {}
    for number, (name, more) in enumerate({"web": {}, "raw": RAW_PORT, "one": RAW_PORT}.items()):
        for item in backed_service(name, ("server", "10.1.0.1"), **more):
            if item["kind"] == "Service" and not headless:
                item["spec"]["clusterIP"] = f"10.0.0.{number + 1}"
            yield item
    yield meshed_pod("server", "10.1.0.1", mode=kind, **ports)
    yield meshed_pod("client", "10.1.0.2", mode=kind, account="client")


def connected(*found: object, **settings: str) -> Fleet:
    """Return the gateway and the sidecars of some objects; each has subscribed and acknowledged like a real proxy."""
    mesh = compiled(*found, **settings).mesh
    fleet, memo = Fleet(), Memo()
    for node in (GATEWAY, *map(sidecar, mesh.workloads)):
        proxy = fleet.expect(node.id)
        proxy.config.set(encode(project(mesh, node, CREDENTIAL), memo))
        XdsClient(proxy).take()
    return fleet


def condition(fleet: Fleet, *ports: RouteParent) -> tuple[bool, str]:
    found = programmed(Receipts(fleet.connected()).progress(ports), accepted=True)
    return found.status, found.message


def withhold_ack(fleet: Fleet, node: str, type_url: TypeUrl, name: str) -> None:
    """Send a proxy a new version of a resource, without an acknowledgment from the proxy."""
    outdate(fleet.proxies[node], type_url, name)


@pytest.mark.parametrize("kind", ["transparent", "explicit"])
@pytest.mark.parametrize("port", [WEB, RAW])
def test_every_proxy_that_may_call_a_service_is_part_of_the_count(kind: str, port: PortRef) -> None:
    """R20. Each client's proxy applies the shares itself."""
    assert condition(connected(*objects(kind), SPLIT), port) == (True, "3 of 3 proxies have the configuration")


def test_the_message_names_lagging_proxies() -> None:
    fleet = connected(*objects())
    withhold_ack(fleet, CLIENT, SCOPES, "outbound/default/web/8080")
    assert condition(fleet, WEB) == (False, f"2 of 3 proxies have the configuration; waiting for {CLIENT}")
    withhold_ack(fleet, SERVER, CLUSTER, "outbound/default/web/8080")
    assert condition(fleet, WEB) == (False, f"1 of 3 proxies have the configuration; waiting for {CLIENT}, {SERVER}")


def test_shares_of_a_tcp_service_are_in_its_listener() -> None:
    """R34. TCP listeners have no routes."""
    fleet = connected(*objects(), SPLIT)
    withhold_ack(fleet, CLIENT, LISTENER, "outbound/default/raw/9000")
    assert condition(fleet, RAW) == (False, f"2 of 3 proxies have the configuration; waiting for {CLIENT}")


def test_shares_of_a_headless_service_are_in_the_listeners_of_its_pods() -> None:
    """R37. A headless Service has no address of its own."""
    # without the Service `one`, which has the same endpoint
    own = [item for item in objects(headless=True) if item["metadata"]["name"] != "one"]
    fleet = connected(*own)
    assert condition(fleet, RAW) == (True, "3 of 3 proxies have the configuration")
    withhold_ack(fleet, CLIENT, LISTENER, "pod/default/raw/9000/10.1.0.1/9000")
    assert condition(fleet, RAW) == (False, f"2 of 3 proxies have the configuration; waiting for {CLIENT}")


def test_a_proxy_without_the_service_in_its_view_is_not_counted() -> None:
    """D21. With `--access deny`, a Service is only in the configuration of the clients that may call it."""
    access = traffic_target("raw", "web", ["client"], [tcp_rule("t")])
    route = smi_tcp_route("t", 9000)
    fleet = connected(*objects("explicit"), access, route, access="deny")
    assert condition(fleet, RAW) == (True, "2 of 2 proxies have the configuration")
    config = fleet.proxies[SERVER].config.get()
    assert config
    assert "outbound/default/raw/9000" not in config[ROUTES]


def test_a_proxy_that_still_holds_a_removed_resource_lags() -> None:
    fleet = connected(*objects())
    config = fleet.proxies[CLIENT].config
    wanted = config.get()
    assert wanted
    gone = "outbound/default/web/8080"
    config.set({kind: {name: item for name, item in found.items() if name != gone} for kind, found in wanted.items()})
    assert condition(fleet, WEB) == (False, f"2 of 3 proxies have the configuration; waiting for {CLIENT}")
    XdsClient(fleet.proxies[CLIENT]).take()
    assert condition(fleet, WEB) == (True, "2 of 2 proxies have the configuration")


def test_a_sidecar_without_configuration_counts_as_lagging_for_services_but_not_for_gateways() -> None:
    fleet = connected(*objects())
    fleet.proxies[CLIENT].config.set(None)
    assert condition(fleet, WEB) == (False, f"2 of 3 proxies have the configuration; waiting for {CLIENT}")
    assert condition(fleet, GatewayRef("default/edge", 80)) == (False, "no proxy needs the configuration")


def test_a_disconnected_proxy_is_not_counted() -> None:
    fleet = connected(*objects())
    fleet.proxies[CLIENT].session = None
    assert condition(fleet, WEB) == (True, "2 of 2 proxies have the configuration")


def test_a_list_of_many_names_is_shortened() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few([str(number) for number in range(42)]) == "0, 1, 2, 3, 4 and 37 more"


def refuse(fleet: Fleet, type_url: TypeUrl, name: str, *nodes: str) -> None:
    for node in nodes:
        outdate(fleet.proxies[node], type_url, name)
        XdsClient(fleet.proxies[node]).take(refuse={(type_url, name): "bad"})


def test_a_refusal_by_several_proxies_is_one_finding() -> None:
    found = list(objects())
    fleet = connected(*found)
    refuse(fleet, SCOPES, "outbound/default/web/8080", SERVER, CLIENT)
    (finding,) = refusals(compiled(*found), fleet.connected())
    assert finding.message == f"the proxies {CLIENT}, {SERVER} rejected outbound/default/web/8080: bad"
    assert (
        condition(fleet, WEB)[1] == "1 of 3 proxies have the configuration; "
        f"{CLIENT} rejected the configuration: bad; {SERVER} rejected the configuration: bad"
    )


@pytest.mark.parametrize(
    ("type_url", "name"),
    [(LISTENER, "inbound"), (ROUTES, "inbound/8080/http"), (SECRET, "identity"), (SECRET, "roots")],
)
def test_a_refused_resource_of_a_sidecar_is_a_finding_about_its_pod(type_url: TypeUrl, name: str) -> None:
    found = list(objects())
    fleet = connected(*found)
    refuse(fleet, type_url, name, SERVER)
    (finding,) = refusals(compiled(*found), fleet.connected())
    assert finding.about == POD.key("default", "server")
    assert finding.message == f"the proxy {SERVER} rejected {name}: bad"


def test_a_split_without_its_root_is_valid_and_not_programmed() -> None:
    split = Key("split.smi-spec.io", "TrafficSplit", "default", "website")
    missing = Finding(about=split, reason=Reason.SERVICE_NOT_FOUND, field="spec.service", message="not found")
    by_type = {item.type: item for item in conditions((missing,), Progress(), ())}
    assert (by_type["Accepted"].status, by_type["Accepted"].message) == (True, "the split is valid")
    assert (by_type["Programmed"].status, by_type["Programmed"].reason) == (False, "Invalid")
