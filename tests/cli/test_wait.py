"""`headgate wait` and `headgate logs` against a served API; the tests write the statuses of the objects."""

import json
import signal
from typing import Any, cast

import pytest
from tests.cli.conftest import ServedMesh, ended, make_status
from tests.make import objects
from tests.make.objects import Object, deployment, pod, tls_config, traffic_target

from headgate.cli.wait import Readiness, daemon_set_progress, stateful_set_progress, watch_object
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.resources.gateway_api.routes import PROGRAMMED_AT_PARENT
from headgate.resources.registry import KINDS

WAITING = "Pending: 0 of 1 proxies have the configuration; waiting for gateway"


async def test_wait_returns_at_once_when_every_proxy_has_acknowledged_the_split(served: ServedMesh) -> None:
    split = objects.split("website", {"v1": 1})
    await served.store.create(split)
    await served.status(split, make_status(reasons={"Programmed": "Programmed: 1 of 1 proxies have the configuration"}))
    ran = await served.run("wait", "trafficsplit/website")
    assert ran == (0, "trafficsplit/website: 1 of 1 proxies have the configuration\n", "")
    document = json.loads((await served.run("wait", "ts/website", "-o", "json")).out)
    assert (document["name"], document["generation"]) == ("website", 1)


async def test_wait_waits_for_a_missing_object_and_its_last_generation(served: ServedMesh) -> None:
    process = await served.start("wait", "TrafficSplits.split.smi-spec.io/website", "-n", "default", "-o", "json")
    split = objects.split("website", {"v1": 1})
    created = await served.store.create(split)
    await served.status(split, make_status(1, Programmed="False", reasons={"Programmed": WAITING}))
    created = await served.store.update(
        {**created, "spec": objects.split("website", {"v1": 2})["spec"], "metadata": split["metadata"]}
    )
    assert created["metadata"]["generation"] == 2
    await served.status(split, make_status(1))  # the status of the previous generation, so `wait` continues
    await served.status(split, make_status(2, reasons={"Programmed": "Programmed: at last"}))
    ran = await ended(process)
    document = json.loads(ran.out)
    assert (ran.code, document["generation"], document["message"]) == (0, 2, "at last")


async def test_a_timeout_prints_the_message_of_the_condition(served: ServedMesh) -> None:
    split = objects.split("website", {"v1": 1})
    await served.store.create(split)
    await served.status(split, make_status(Programmed="False", reasons={"Programmed": WAITING}))
    ran = await served.run("wait", "ts/website", "--timeout", "500ms")
    assert ran.code == 124
    assert f"TrafficSplit default/website is not ready after 0.5 s: {WAITING}" in ran.err


async def test_wait_says_at_once_that_an_object_does_not_exist(served: ServedMesh) -> None:
    """And again after the timeout: the name or the namespace may be wrong."""
    missing = "it does not exist; create it, correct the name, or give its namespace with -n"
    ran = await served.run("wait", "ts/other", "--timeout", "500ms")
    assert (ran.code, ran.out) == (124, "")
    first, last = ran.err.splitlines()
    assert first == f"TrafficSplit default/other: {missing}"
    assert last.endswith(f"TrafficSplit default/other is not ready after 0.5 s: {missing}")


async def test_a_short_timeout_still_reads_the_object_once(served: ServedMesh) -> None:
    """The message must not claim that the object is missing only because the API is slow."""
    split = objects.split("website", {"v1": 1})
    await served.store.create(split)
    await served.status(split, make_status(Programmed="False", reasons={"Programmed": WAITING}))
    ran = await served.run("wait", "ts/website", "--timeout", "1ms")
    assert (ran.code, f"is not ready after 0.001 s: {WAITING}" in ran.err) == (124, True)


async def test_wait_exits_with_1_for_a_split_that_is_not_accepted(served: ServedMesh) -> None:
    split = objects.split("website", {"v1": 1})
    await served.store.create(split)
    words = {"Accepted": "SelfReference: website is both the root and a backend"}
    await served.status(split, make_status(Accepted="False", Programmed="False", reasons=words))
    ran = await served.run("wait", "ts/website", "--timeout", "1m")
    assert ran.code == 1
    assert "SelfReference: website is both the root and a backend" in ran.err


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (tls_config("strict", {"app": "web"}), "tlsconfig/strict"),
        (traffic_target("access", "web", ["client"]), "tt/access"),
    ],
)
async def test_wait_for_access_and_tls_objects_waits_for_every_pod(served: ServedMesh, obj: Any, name: str) -> None:
    """R70, R74."""
    await served.store.create(obj)
    words = {"Programmed": "Pending: strict on 1 of 2 pods; waiting for sidecar/default/web"}
    await served.status(obj, make_status(Programmed="False", reasons=words))
    ran = await served.run("wait", name, "--timeout", "500ms")
    assert (ran.code, words["Programmed"] in ran.err) == (124, True)
    await served.status(obj, make_status(reasons={"Programmed": "Programmed: strict on 2 of 2 pods"}))
    ran = await served.run("wait", name)
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


async def test_wait_for_a_route_waits_for_each_parent(served: ServedMesh) -> None:
    route = make_route()
    await served.store.create(route)
    ran = await served.run("wait", "httproute/web", "--timeout", "500ms")
    assert (ran.code, "generation 1 is not processed yet" in ran.err) == (124, True)
    fine = {"Accepted": "Accepted", PROGRAMMED_AT_PARENT: "Programmed"}
    foreign = parent("far", "example.com/other", Accepted="Refused!")
    lagging = parent("other", Accepted="Accepted", **{PROGRAMMED_AT_PARENT: "Pending!"})
    await served.status(route, {"parents": [foreign, parent("edge", **fine), lagging]})
    ran = await served.run("wait", "httproute/web", "--timeout", "500ms")
    assert (ran.code, "at Gateway other: Pending: other headgate.dev/Programmed" in ran.err) == (124, True)
    await served.status(route, {"parents": [foreign, parent("edge", **fine), parent("other", **fine)]})
    assert (await served.run("wait", "httproute/web")).code == 0
    refused = parent("other", Accepted="NoMatchingParent!", **{PROGRAMMED_AT_PARENT: "Invalid!"})
    await served.status(route, {"parents": [parent("edge", **fine), refused]})
    ran = await served.run("wait", "httproute/web")
    assert (ran.code, "NoMatchingParent: other Accepted" in ran.err) == (1, True)


async def test_wait_for_a_gateway_waits_until_it_is_programmed(served: ServedMesh) -> None:
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = make_route(kind="Gateway", spec={"gatewayClassName": "headgate", "listeners": [listener]})
    await served.store.create(gateway)
    ran = await served.run("wait", "gateway/web", "--timeout", "500ms")
    assert (ran.code, "no proxy has received it yet" in ran.err) == (124, True)
    await served.status(gateway, parent("edge", Accepted="Accepted", Programmed="Programmed"))
    assert (await served.run("wait", "gateway/web")).out == "gateway/web: edge Programmed\n"


@pytest.mark.parametrize(
    ("controller", "problem"),
    [
        ("", "GatewayClass edge not found; create it, or set spec.gatewayClassName to headgate"),
        ("example.com/other", "GatewayClass edge is of example.com/other, not of headgate"),
        ("headgate.dev/gateway-controller", ""),
    ],
)
async def test_wait_for_a_gateway_says_at_once_that_its_class_is_not_headgates(
    served: ServedMesh, controller: str, problem: str
) -> None:
    if controller:
        found = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "edge"}}
        await served.store.create({**found, "spec": {"controllerName": controller}})
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = make_route(kind="Gateway", spec={"gatewayClassName": "edge", "listeners": [listener]})
    await served.store.create(gateway)
    waiting = await served.start("wait", "gateway/web", "--timeout", "1m")
    if problem:
        assert problem in (await waiting.stderr.readline()).decode()
    await served.status(gateway, parent("edge", Accepted="Accepted", Programmed="Programmed"))
    assert (await ended(waiting)).code == 0
    other = {**gateway, "metadata": {"name": "other", "namespace": "default"}}
    await served.store.create(other)
    ran = await served.run("wait", "gateway/other", "--timeout", "500ms")
    assert (ran.code, (problem or "no proxy has received it yet") in ran.err.splitlines()[-1]) == (124, True)


async def test_wait_for_a_deployment_waits_until_it_is_available(served: ServedMesh) -> None:
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2},
    }
    await served.store.create(deployment)
    counts = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}
    await served.status(deployment, counts)
    ran = await served.run("wait", "deploy/web", "--timeout", "500ms")
    assert (ran.code, "1 of 2 pods are available" in ran.err) == (124, True)
    await served.status(deployment, counts | {"availableReplicas": 2})
    assert (await served.run("wait", "deploy/web")).code == 0


def workload(kind: str) -> Object:
    """Return a workload `web` of two pods."""
    spec = deployment("web", objects.container(), replicas=2)["spec"]
    if kind == "Job":
        template = objects.pod_template(objects.container(), labels={"app": "web"}, restartPolicy="Never")
        return objects.obj(kind, "web", version="batch/v1", spec={"completions": 2, "template": template})
    kept = {name: spec[name] for name in ("selector", "template", *(["replicas"] if kind == "StatefulSet" else []))}
    return objects.obj(kind, "web", version="apps/v1", spec=kept)


@pytest.mark.parametrize(
    ("kind", "word", "pending", "done", "message"),
    [
        (
            "StatefulSet",
            "sts",
            {
                "observedGeneration": 1,
                "updateRevision": "b",
                "currentRevision": "a",
                "updatedReplicas": 1,
                "readyReplicas": 2,
            },
            {"updatedReplicas": 2},
            "2 of 2 pods are available, 1 of them up to date",
        ),
        (
            "DaemonSet",
            "ds",
            {"observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1},
            {"numberAvailable": 1},
            "0 of 1 pods are available, 1 of them up to date",
        ),
        (
            "Job",
            "job",
            {"succeeded": 1, "failed": 1},
            {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]},
            "1 of 2 pods have succeeded, 1 have failed",
        ),
    ],
    ids=["StatefulSet", "DaemonSet", "Job"],
)
async def test_wait_for_a_workload(
    served: ServedMesh, kind: str, word: str, *, pending: Any, done: Any, message: str
) -> None:
    obj = workload(kind)
    await served.store.create(obj)
    await served.status(obj, pending)
    ran = await served.run("wait", f"{word}/web", "--timeout", "500ms")
    assert (ran.code, message in ran.err) == (124, True), ran
    await served.status(obj, pending | done)
    assert (await served.run("wait", f"{word}/web")).code == 0


ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}


@pytest.mark.parametrize(
    ("strategy", "updated", "readiness"),
    [
        ({}, 1, Readiness.PENDING),
        (ROLLING, 0, Readiness.PENDING),
        (ROLLING, 1, Readiness.READY),
        (ROLLING | {"rollingUpdate": {"partition": 3}}, 0, Readiness.READY),
        ({"type": "OnDelete"}, 0, Readiness.READY),
    ],
)
def test_a_stateful_set_is_ready_when_the_pods_that_its_strategy_updates_are_updated(
    strategy: Any, updated: int, readiness: Readiness
) -> None:
    status = {"updateRevision": "b", "currentRevision": "a", "updatedReplicas": updated, "readyReplicas": 2}
    progress = stateful_set_progress(
        {"metadata": {}, "spec": {"replicas": 2, "updateStrategy": strategy}, "status": status}
    )
    assert progress == (readiness, f"2 of 2 pods are available, {updated} of them up to date")


def test_a_daemon_set_whose_user_replaces_the_pods_is_ready_without_updates() -> None:
    status = {"desiredNumberScheduled": 1, "numberAvailable": 1}
    spec = {"updateStrategy": {"type": "OnDelete"}}
    assert daemon_set_progress({"metadata": {}, "spec": spec, "status": status}).readiness is Readiness.READY
    assert daemon_set_progress({"metadata": {}, "spec": {}, "status": status}).readiness is Readiness.PENDING


async def test_wait_for_a_failed_job_exits_with_1_and_its_message(served: ServedMesh) -> None:
    obj = workload("Job")
    await served.store.create(obj)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed too often"}
    await served.status(obj, {"conditions": [failed]})
    ran = await served.run("wait", "job/web")
    assert (ran.code, "BackoffLimitExceeded: it failed too often" in ran.err) == (1, True)


async def test_an_unreachable_api_exits_with_3_and_names_headgate_up(served: ServedMesh) -> None:
    kubeconfig = served.state / "kubeconfig"
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig.write_text(json.dumps(config))
    ran = await served.run("wait", "ts/website")
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
async def test_an_invalid_kubeconfig_is_an_error_that_names_its_path(
    served: ServedMesh, content: str, message: str
) -> None:
    (served.state / "other").write_text(content)
    ran = await served.run("wait", "ts/website", "--kubeconfig", str(served.state / "other"))
    assert ran.code == 1
    assert message in ran.err
    assert str(served.state / "other") in ran.err


async def test_a_wrong_token_is_an_error(served: ServedMesh) -> None:
    kubeconfig = served.state / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace("a-token-for-tests", "another"))
    ran = await served.run("wait", "ts/website")
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


def web_pod(name: str, ready: str) -> Object:
    return pod(name, labels={"app": "web"}, status={"conditions": [{"type": "Ready", "status": ready}]})


async def test_logs_prints_the_logs_of_a_pod_or_of_a_ready_pod_of_a_deployment(served: ServedMesh) -> None:
    for one in (web_pod("web-1", "False"), web_pod("web-2", "True")):
        await served.store.create(one)
        await served.status(one, one["status"])
    await served.store.create(deployment("web"))
    assert (await served.run("logs", "web-1")).out == "web-1 line 0\nweb-1 line 1\nweb-1 line 2\n"
    ran = await served.run("logs", "deployment/web", "--tail", "1")
    assert (ran.out, ran.err) == ("web-2 line 2\n", "Found 2 pods, using pod/web-2\n")


async def test_logs_of_a_missing_pod_exit_with_1(served: ServedMesh) -> None:
    ran = await served.run("logs", "web-1")
    assert ran.code == 1
    assert 'pods "web-1" not found' in ran.err


async def test_ctrl_c_exits_with_130_and_prints_no_error(served: ServedMesh) -> None:
    await served.store.create(web_pod("web-1", "True"))
    process = await served.start("logs", "web-1", "--follow")
    assert await process.stdout.readline() == b"web-1 line 0\n"
    process.send_signal(signal.SIGINT)
    ran = await ended(process)
    assert (ran.code, ran.err) == (130, "")
