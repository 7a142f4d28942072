"""`headgate wait` and `headgate logs` against a served API; the tests write the statuses of the objects."""

import json
import signal
from typing import Any, cast

import pytest
from tests.cli.conftest import World, ended, make_split, make_status
from tests.make.objects import tls_config, traffic_target

from headgate.cli.wait import watch_object
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.resources.registry import KINDS

WAITING = "Pending: 0 of 1 proxies have the configuration; waiting for gateway"


async def test_wait_returns_at_once_when_every_proxy_has_acknowledged_the_split(world: World) -> None:
    split = make_split({"v1": 1})
    await world.store.create(split)
    await world.status(split, make_status(reasons={"Programmed": "Programmed: 1 of 1 proxies have the configuration"}))
    ran = await world.run("wait", "trafficsplit/website")
    assert ran == (0, "trafficsplit/website: 1 of 1 proxies have the configuration\n", "")
    document = json.loads((await world.run("wait", "ts/website", "-o", "json")).out)
    assert (document["name"], document["generation"]) == ("website", 1)


async def test_wait_waits_for_a_missing_object_and_its_last_generation(world: World) -> None:
    process = await world.start("wait", "TrafficSplits.split.smi-spec.io/website", "-n", "default", "-o", "json")
    split = make_split({"v1": 1})
    created = await world.store.create(split)
    await world.status(split, make_status(1, Programmed="False", reasons={"Programmed": WAITING}))
    created = await world.store.update(
        {**created, "spec": make_split({"v1": 2})["spec"], "metadata": split["metadata"]}
    )
    assert created["metadata"]["generation"] == 2
    await world.status(split, make_status(1))  # the status of the previous generation, so `wait` continues
    await world.status(split, make_status(2, reasons={"Programmed": "Programmed: at last"}))
    ran = await ended(process)
    document = json.loads(ran.out)
    assert (ran.code, document["generation"], document["message"]) == (0, 2, "at last")


async def test_a_timeout_prints_the_message_of_the_condition(world: World) -> None:
    split = make_split({"v1": 1})
    await world.store.create(split)
    await world.status(split, make_status(Programmed="False", reasons={"Programmed": WAITING}))
    ran = await world.run("wait", "ts/website", "--timeout", "500ms")
    assert ran.code == 124
    assert f"TrafficSplit default/website is not ready after 0.5 s: {WAITING}" in ran.err


async def test_wait_says_at_once_that_an_object_does_not_exist(world: World) -> None:
    """And again after the timeout: the name or the namespace may be wrong."""
    missing = "it does not exist; create it, correct the name, or give its namespace with -n"
    ran = await world.run("wait", "ts/other", "--timeout", "500ms")
    assert (ran.code, ran.out) == (124, "")
    first, last = ran.err.splitlines()
    assert first == f"TrafficSplit default/other: {missing}"
    assert last.endswith(f"TrafficSplit default/other is not ready after 0.5 s: {missing}")


async def test_a_short_timeout_still_reads_the_object_once(world: World) -> None:
    """The message must not claim that the object is missing only because the API is slow."""
    split = make_split({"v1": 1})
    await world.store.create(split)
    await world.status(split, make_status(Programmed="False", reasons={"Programmed": WAITING}))
    ran = await world.run("wait", "ts/website", "--timeout", "1ms")
    assert (ran.code, f"is not ready after 0.001 s: {WAITING}" in ran.err) == (124, True)


async def test_wait_exits_with_1_for_a_split_that_is_not_accepted(world: World) -> None:
    split = make_split({"v1": 1})
    await world.store.create(split)
    words = {"Accepted": "SelfReference: website is both the root and a backend"}
    await world.status(split, make_status(Accepted="False", Programmed="False", reasons=words))
    ran = await world.run("wait", "ts/website", "--timeout", "1m")
    assert ran.code == 1
    assert "SelfReference: website is both the root and a backend" in ran.err


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (tls_config("strict", {"app": "web"}), "tlsconfig/strict"),
        (traffic_target("access", "web", ["client"]), "tt/access"),
    ],
)
async def test_wait_for_access_and_tls_objects_waits_for_every_pod(world: World, obj: Any, name: str) -> None:
    """R70, R74."""
    await world.store.create(obj)
    words = {"Programmed": "Pending: strict on 1 of 2 pods; waiting for sidecar/default/web"}
    await world.status(obj, make_status(Programmed="False", reasons=words))
    ran = await world.run("wait", name, "--timeout", "500ms")
    assert (ran.code, words["Programmed"] in ran.err) == (124, True)
    await world.status(obj, make_status(reasons={"Programmed": "Programmed: strict on 2 of 2 pods"}))
    ran = await world.run("wait", name)
    assert (ran.code, ran.out.endswith(": strict on 2 of 2 pods\n")) == (0, True)


def make_route(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge"}, {"name": "other"}]},
        **fields,
    }


def parent(name: str, controller: str = "headgate.dev/gateway-controller", **reasons: str) -> dict[str, Any]:
    """Return a parent status; a condition whose reason ends with `!` is False."""
    conditions = [
        {
            "type": type,
            "status": "False" if reason.endswith("!") else "True",
            "reason": reason.rstrip("!"),
            "message": f"{name} {type}",
            "observedGeneration": 1,
        }
        for type, reason in reasons.items()
    ]
    return {
        "parentRef": {"kind": "Gateway", "name": name},
        "controllerName": controller,
        "conditions": conditions,
    }


async def test_wait_for_a_route_waits_for_each_parent(world: World) -> None:
    route = make_route()
    await world.store.create(route)
    ran = await world.run("wait", "httproute/web", "--timeout", "500ms")
    assert (ran.code, "generation 1 is not processed yet" in ran.err) == (124, True)
    fine = {"Accepted": "Accepted", "Programmed": "Programmed"}
    foreign = parent("far", "example.com/other", Accepted="Refused!")
    lagging = parent("other", Accepted="Accepted", Programmed="Pending!")
    await world.status(route, {"parents": [foreign, parent("edge", **fine), lagging]})
    ran = await world.run("wait", "httproute/web", "--timeout", "500ms")
    assert (ran.code, "at Gateway other: Pending: other Programmed" in ran.err) == (124, True)
    await world.status(route, {"parents": [foreign, parent("edge", **fine), parent("other", **fine)]})
    assert (await world.run("wait", "httproute/web")).code == 0
    refused = parent("other", Accepted="NoMatchingParent!", Programmed="Invalid!")
    await world.status(route, {"parents": [parent("edge", **fine), refused]})
    ran = await world.run("wait", "httproute/web")
    assert (ran.code, "NoMatchingParent: other Accepted" in ran.err) == (1, True)


async def test_wait_for_a_gateway_waits_until_it_is_programmed(world: World) -> None:
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = make_route(kind="Gateway", spec={"gatewayClassName": "headgate", "listeners": [listener]})
    await world.store.create(gateway)
    ran = await world.run("wait", "gateway/web", "--timeout", "500ms")
    assert (ran.code, "no proxy has received it yet" in ran.err) == (124, True)
    await world.status(gateway, parent("edge", Accepted="Accepted", Programmed="Programmed"))
    assert (await world.run("wait", "gateway/web")).out == "gateway/web: edge Programmed\n"


@pytest.mark.parametrize(
    ("controller", "problem"),
    [
        ("", "GatewayClass edge not found; create it, or set spec.gatewayClassName to headgate"),
        ("example.com/other", "GatewayClass edge is of example.com/other, not of headgate"),
        ("headgate.dev/gateway-controller", ""),
    ],
)
async def test_wait_for_a_gateway_says_at_once_that_its_class_is_not_headgates(
    world: World, controller: str, problem: str
) -> None:
    if controller:
        found = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "edge"}}
        await world.store.create({**found, "spec": {"controllerName": controller}})
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = make_route(kind="Gateway", spec={"gatewayClassName": "edge", "listeners": [listener]})
    await world.store.create(gateway)
    waiting = await world.start("wait", "gateway/web", "--timeout", "1m")
    if problem:
        assert problem in (await waiting.stderr.readline()).decode()
    await world.status(gateway, parent("edge", Accepted="Accepted", Programmed="Programmed"))
    assert (await ended(waiting)).code == 0
    other = {**gateway, "metadata": {"name": "other", "namespace": "default"}}
    await world.store.create(other)
    ran = await world.run("wait", "gateway/other", "--timeout", "500ms")
    assert (ran.code, (problem or "no proxy has received it yet") in ran.err.splitlines()[-1]) == (124, True)


async def test_wait_for_a_deployment_waits_until_it_is_available(world: World) -> None:
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2},
    }
    await world.store.create(deployment)
    counts = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}
    await world.status(deployment, counts)
    ran = await world.run("wait", "deploy/web", "--timeout", "500ms")
    assert (ran.code, "1 of 2 pods are available" in ran.err) == (124, True)
    await world.status(deployment, counts | {"availableReplicas": 2})
    assert (await world.run("wait", "deploy/web")).code == 0


async def test_an_unreachable_api_exits_with_3_and_names_headgate_up(world: World) -> None:
    kubeconfig = world.state / "kubeconfig"
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig.write_text(json.dumps(config))
    ran = await world.run("wait", "ts/website")
    assert ran.code == 3
    assert "no API answers at https://127.0.0.1:1" in ran.err
    assert "headgate up DIR" in ran.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not YAML"),
        ("", "is empty or not a YAML object"),
        ("current-context: here", "has no context 'here'"),
        ("{}", "has no current context"),
    ],
)
async def test_an_invalid_kubeconfig_is_an_error_that_names_its_path(world: World, content: str, message: str) -> None:
    (world.state / "other").write_text(content)
    ran = await world.run("wait", "ts/website", "--kubeconfig", str(world.state / "other"))
    assert ran.code == 1
    assert message in ran.err
    assert str(world.state / "other") in ran.err


async def test_a_wrong_token_is_an_error(world: World) -> None:
    kubeconfig = world.state / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace("a-token-for-tests", "another"))
    ran = await world.run("wait", "ts/website")
    assert ran.code == 1
    assert "the API refuses" in ran.err


async def test_a_kind_that_the_cluster_does_not_serve_is_an_error() -> None:
    """Without headgate's definitions an API server answers only `404 page not found`."""

    class Unserved:
        async def items(self, *_arguments: object, **_query: str) -> Any:
            raise NotFound("the API answers with 404 (404 page not found)")

    kind = next(kind for kind in KINDS if kind.kind == "TrafficSplit")
    with pytest.raises(HeadgateError, match=r"does not serve trafficsplits\.split\.smi-spec\.io; install headgate"):
        await anext(watch_object(cast("Client", Unserved()), kind, "default", "website"))


def pod(name: str, ready: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "none"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


async def test_logs_prints_the_logs_of_a_pod_or_of_a_ready_pod_of_a_deployment(world: World) -> None:
    for one in (pod("web-1", "False"), pod("web-2", "True")):
        await world.store.create(one)
        await world.status(one, one["status"])
    await world.store.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        }
    )
    assert (await world.run("logs", "web-1")).out == "web-1 line 0\nweb-1 line 1\nweb-1 line 2\n"
    ran = await world.run("logs", "deployment/web", "--tail", "1")
    assert (ran.out, ran.err) == ("web-2 line 2\n", "Found 2 pods, using pod/web-2\n")


async def test_logs_of_a_missing_pod_exit_with_1(world: World) -> None:
    ran = await world.run("logs", "web-1")
    assert ran.code == 1
    assert 'pods "web-1" not found' in ran.err


async def test_ctrl_c_exits_with_130_and_prints_no_error(world: World) -> None:
    await world.store.create(pod("web-1", "True"))
    process = await world.start("logs", "web-1", "-f")
    assert await process.stdout.readline() == b"web-1 line 0\n"
    process.send_signal(signal.SIGINT)
    ran = await ended(process)
    assert (ran.code, ran.err) == (130, "")
