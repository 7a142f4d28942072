"""Pods of headless Services are called by their names: exactly that pod, without the routes of its Service (D37)."""

import pytest
from tests.envoy.rig import NODE, EnvoyRig
from tests.make.objects import endpoint, endpoint_slice, port, route, rule, service, service_parent
from tests.make.values import compiled
from tests.wire import Address

from headgate.envoy.view import Node
from headgate.model.evaluate import Request, decide
from headgate.model.routing import Mesh, PortRef

PODS = ("one", "two")


@pytest.fixture
def rig(envoy: EnvoyRig) -> EnvoyRig:
    for name in (*PODS, "other"):
        envoy.echo(name)
    return envoy


def pushed(rig: EnvoyRig, *, cluster_ip: str = "None", app: str = "http") -> tuple[Mesh, Address]:
    """Push a headless Service `db` with two pods and a route, and a Service `one` in the namespace `db`."""
    marked = {
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": "x-routed", "value": "yes"}]},
    }
    number = {name: rig.echoes[name].port for name in (*PODS, "other")}
    mesh = compiled(
        service("db", *(port(number[name], name, app=app) for name in PODS), clusterIP=cluster_ip),
        service("one", port(number["one"], "http"), namespace="db", clusterIP="None"),
        endpoint_slice("one", ["127.0.0.1"], {"http": number["other"]}, namespace="db"),
        route("db", rule({"db": 1}, port=number["two"], filters=[marked]), parents=[service_parent("db")]),
        *(
            endpoint_slice("db", [endpoint("127.0.0.1", name, hostname=name)], {name: number[name]}, name=f"db-{name}")
            for name in PODS
        ),
    ).mesh
    proxy = rig.free()
    rig.push(mesh, Node(id=NODE.id, proxy_address=proxy.host, proxy_port=proxy.port))
    rig.ask_when_listening(address=proxy)
    return mesh, proxy


@pytest.mark.parametrize(
    "name",
    [
        "{}.db",
        "{}.db.default",
        "{}.db.default.svc",
        "{}.db.default.svc.cluster.local",
        "{}.DB.default.svc.cluster.local.",
    ],
)
def test_the_name_of_a_pod_leads_to_this_pod(rig: EnvoyRig, name: str) -> None:
    """`one.db` is a Service too, of the namespace `db`; the short name means the pod first."""
    mesh, proxy = pushed(rig)
    for pod in PODS:
        host = f"{name.format(pod)}:{rig.echoes[pod].port}"
        for _ in range(3):
            answer = rig.ask(address=proxy, host=host)
            assert (answer.answered_by, answer.headers.get("x-routed")) == (pod, None)
        (portion,) = decide(mesh, host, Request(authority=host)).shares
        assert portion.pod
        assert portion.pod.workload == f"default/{pod}"


def test_the_service_keeps_its_routes_and_another_service_its_longer_names(rig: EnvoyRig) -> None:
    mesh, proxy = pushed(rig)
    answer = rig.ask(address=proxy, host=f"db.default:{rig.echoes['one'].port}")
    assert (answer.answered_by, answer.headers.get("x-routed")) == ("two", "yes")
    host = f"one.db.svc:{rig.echoes['one'].port}"
    assert rig.ask(address=proxy, host=host).answered_by == "other"
    assert decide(mesh, host, Request(authority=host)).shares[0].ref == PortRef("db/one", rig.echoes["one"].port)


@pytest.mark.parametrize("host", ["three.db.default", "one.db.shop", "one.db.default.svc.example.org"])
def test_no_other_name_leads_to_a_pod(rig: EnvoyRig, host: str) -> None:
    mesh, proxy = pushed(rig)
    host = f"{host}:{rig.echoes['one'].port}"
    assert rig.ask(address=proxy, host=host).status == 404
    assert [portion.status for portion in decide(mesh, host, Request(authority=host)).shares] == [404]


def test_pods_of_a_service_with_an_address_have_no_names(rig: EnvoyRig) -> None:
    _, proxy = pushed(rig, cluster_ip="127.0.0.9")
    assert rig.ask(address=proxy, host=f"one.db.default:{rig.echoes['one'].port}").status == 404
