"""Which workloads a restart can replace, what to do instead, and when a restarted workload is ready."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.make.objects import container, deployment

from headgate.cli.restart_plan import due_workload, interruption, lagging, obstacle, rollout_progress, unsynchronized
from headgate.cli.wait import Readiness
from headgate.resources.inspect import ObjectName, Proxy, ProxyState, ProxyStatus, SidecarProxy
from headgate.resources.meta import Key, Object
from headgate.resources.workload_sidecars import PodRestart, WorkloadSidecars

WEB = Key("apps", "Deployment", "shop", "web")
INJECTED = deployment("web", container("headgate-sidecar"), container("web"))


def workload(*pods: PodRestart) -> WorkloadSidecars:
    return WorkloadSidecars(metadata=ObjectName(name="deployment.web", namespace="shop"), object=WEB, pods=pods)


def web_pod(
    name: str = "web-1", *messages: str, injected: bool = True, state: ProxyState | None = "InSync"
) -> PodRestart:
    proxy = SidecarProxy(state=state, message="", serves=True) if state else None
    return PodRestart(name=name, sidecar="transparent", injected=injected, messages=messages, proxy=proxy)


def of_kind(kind: str, spec: Mapping[str, Any] = {}, **status: Any) -> Object:
    return {
        "kind": kind,
        "metadata": {"name": "web", "generation": 2},
        "spec": spec,
        "status": {"observedGeneration": 2, **status},
    }


@pytest.mark.parametrize(
    ("key", "spec", "words"),
    [
        (WEB, {}, ""),
        (WEB, {"paused": True}, "kubectl -n shop rollout resume deployment/web"),
        (
            Key("apps", "DaemonSet", "shop", "web"),
            {"updateStrategy": {"type": "OnDelete"}},
            "delete its pods one by one",
        ),
        (
            Key("apps", "StatefulSet", "shop", "web"),
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            "set it to 0",
        ),
        (Key("", "Pod", "shop", "web"), {}, "no controller creates it again"),
        (Key("batch", "Job", "shop", "web"), {}, "the pods of the next one get the new sidecar"),
        (Key("argoproj.io", "Rollout", "shop", "web"), {}, "with its own tool"),
    ],
)
def test_a_workload_that_does_not_replace_its_pods_is_named_with_what_to_do(
    key: Key, spec: Mapping[str, Any], words: str
) -> None:
    assert words in obstacle(key, {"spec": spec})
    assert bool(obstacle(key, {"spec": spec})) == bool(words)


def test_a_workload_is_due_with_the_number_of_its_outdated_pods_and_each_difference_once() -> None:
    due = due_workload(
        workload(web_pod("a", "image 1, now 2"), web_pod("b", "image 1, now 2"), web_pod("c")), deployment("web")
    )
    assert due
    assert (due.pods, due.outdated_pods, due.messages, due.advice_message) == (3, 2, ("image 1, now 2",), "")
    assert due_workload(workload(web_pod()), deployment("web")) is None


def test_a_sidecar_that_headgate_inject_wrote_into_the_template_is_due_only_for_its_settings() -> None:
    labeled = web_pod("a", "has a sidecar, and a new pod gets none: no label", injected=False)
    assert due_workload(workload(labeled), INJECTED) is None
    due = due_workload(workload(web_pod("a", "image 1, now 2")), INJECTED)
    assert due
    assert "run the new `headgate inject`" in due.advice_message


@pytest.mark.parametrize(
    ("obj", "readiness", "words"),
    [
        (
            of_kind(
                "StatefulSet",
                {"replicas": 2},
                updateRevision="b",
                currentRevision="a",
                updatedReplicas=1,
                readyReplicas=2,
            ),
            "pending",
            "2 of 2 pods are available, 1 of them",
        ),
        (
            of_kind("StatefulSet", {"replicas": 2}, updateRevision="b", currentRevision="b", readyReplicas=2),
            "done",
            "2 of 2",
        ),
        (of_kind("StatefulSet", {"replicas": 2}, observedGeneration=1, readyReplicas=2), "pending", "not processed"),
        (
            of_kind("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=3, numberAvailable=2),
            "pending",
            "2 of 3",
        ),
        (of_kind("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=3, numberAvailable=3), "done", "3 of 3"),
        (
            of_kind("Deployment", {"replicas": 1}, replicas=2, updatedReplicas=1, availableReplicas=1),
            "pending",
            "1 of 1",
        ),
        (of_kind("Deployment", {"replicas": 1}, replicas=1, updatedReplicas=1, availableReplicas=1), "done", "1 of 1"),
    ],
)
def test_a_rollout_is_done_when_all_pods_are_available_and_have_the_current_template(
    obj: Object, readiness: str, words: str
) -> None:
    progress = rollout_progress(obj)
    assert progress.readiness is Readiness(readiness)
    assert words in progress.message


def test_a_rollout_whose_pods_are_refused_says_why() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "pods is forbidden: exceeded quota: small"}
    progress = rollout_progress(
        of_kind("Deployment", {"replicas": 1}, replicas=1, availableReplicas=1, conditions=[failure])
    )
    assert progress.message.endswith("; a new pod is not created: pods is forbidden: exceeded quota: small")


def test_a_strategy_that_ends_all_pods_first_may_lose_requests() -> None:
    assert "Recreate" in interruption(of_kind("Deployment", {"strategy": {"type": "Recreate"}}))
    assert "one pod" in interruption(of_kind("StatefulSet", {"replicas": 1}))
    assert interruption(of_kind("Deployment", {"replicas": 1})) == ""


@pytest.mark.parametrize(
    ("replicas", "unavailable", "reason"),
    [
        (1, 1, "it has one pod, which ends before the new one starts"),
        (1, "100%", "it has one pod, which ends before the new one starts"),
        (3, "100%", "its maxUnavailable allows all pods to end before new ones start"),
        (1, "25%", ""),
        (3, 1, ""),
        (0, 1, ""),
    ],
)
def test_a_deployment_whose_pods_may_all_be_unavailable_may_lose_requests(
    replicas: int, unavailable: int | str, reason: str
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": unavailable}}
    assert interruption(of_kind("Deployment", {"replicas": replicas, "strategy": strategy})) == reason


@pytest.mark.parametrize(
    ("nodes", "surge", "warns"), [(1, 0, True), (1, None, True), (1, 1, False), (1, "10%", False), (2, 0, False)]
)
def test_a_daemon_set_on_one_node_without_a_surge_may_lose_requests(
    nodes: int, surge: int | str | None, *, warns: bool
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": surge}}
    daemon_set = of_kind("DaemonSet", {"updateStrategy": strategy}, desiredNumberScheduled=nodes)
    assert ("one pod" in interruption(daemon_set)) is warns


def test_a_restart_waits_for_the_proxies_of_the_new_pods_and_for_those_that_lag() -> None:
    new = workload(*(web_pod(f"web-{number}", state="Disconnected") for number in range(5)))
    assert unsynchronized(new, ()).startswith(
        "the proxies of web-0, web-1, web-2 and 2 more are not in sync (Disconnected"
    )
    assert "does not know its proxy yet" in unsynchronized(workload(web_pod(state=None)), ())
    assert unsynchronized(workload(web_pod()), ["shop/client"]).startswith("the proxies of shop/client have not")
    assert unsynchronized(workload(web_pod()), ()) == unsynchronized(None, ()) == ""


def test_only_connected_proxies_lag() -> None:
    def proxy(name: str, state: ProxyState) -> Proxy:
        return Proxy(metadata=ObjectName(name=name, namespace="shop"), node=name, status=ProxyStatus(state=state))

    states = [proxy("a", "Lagging"), proxy("b", "Disconnected"), proxy("c", "Refused"), proxy("d", "InSync")]
    assert lagging(states) == {"shop/a"}
