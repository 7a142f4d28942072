"""Which pods belong to which workload, and which of them a restart would change."""

from typing import Any

from tests.make.objects import pod

from headgate.admission.injection import PodNamespace, explicit_sidecars
from headgate.plane.workload_sidecars import workload_sidecars
from headgate.resources.core.pod_metadata import SIDECAR
from headgate.resources.inspect import ObjectName, Proxy, ProxyStatus
from headgate.resources.meta import Key, Object
from headgate.resources.workload_sidecars import WorkloadSidecars

LABELED = PodNamespace(labels={"headgate.dev/inject": "true"}, configs=())


def owned(name: str, kind: str = "", owner: str = "", *, mode: str = "explicit", **more: Any) -> Object:
    """Return a pod of the namespace shop with a sidecar and a controller."""
    group = "batch/v1" if kind == "Job" else "apps/v1"
    reference = {"apiVersion": group, "kind": kind, "name": owner, "uid": "1", "controller": True}
    metadata = {"ownerReferences": [reference], **more.pop("metadata", {})} if kind else more.pop("metadata", {})
    annotations = {SIDECAR: mode} if mode else {}
    return pod(name, namespace="shop", annotations=annotations, metadata=metadata, **more)


def of_web(suffix: str, **more: Any) -> Object:
    return owned(f"web-5d4f-{suffix}", "ReplicaSet", "web-5d4f", labels={"pod-template-hash": "5d4f"}, **more)


def listed(
    *pods: Object, around: PodNamespace = LABELED, proxies: tuple[Proxy, ...] = ()
) -> tuple[WorkloadSidecars, ...]:
    by_name = {proxy.metadata: proxy for proxy in proxies}
    return workload_sidecars(pods, explicit_sidecars("labelled"), lambda _pod: around, by_name)


def test_pods_are_listed_under_their_deployment_their_controller_or_themselves() -> None:
    pods = (
        of_web("b"),
        of_web("a"),
        owned("db-0", "StatefulSet", "db"),
        owned("task-x", "Job", "task"),
        owned("alone"),
    )
    assert [(workload.object, [pod.name for pod in workload.pods]) for workload in listed(*pods)] == [
        (Key("apps", "Deployment", "shop", "web"), ["web-5d4f-a", "web-5d4f-b"]),
        (Key("batch", "Job", "shop", "task"), ["task-x"]),
        (Key("", "Pod", "shop", "alone"), ["alone"]),
        (Key("apps", "StatefulSet", "shop", "db"), ["db-0"]),
    ]


def test_a_pod_without_a_sidecar_is_outdated_once_a_label_requests_one() -> None:
    (workload,) = listed(of_web("a"), of_web("b", mode=""))
    assert workload.outdated == 1
    assert [bool(pod.messages) for pod in workload.pods] == [False, True]
    assert workload.messages[0].startswith("has no sidecar, and a new pod gets one: the label")
    assert listed(of_web("b", mode=""), around=PodNamespace(labels={}, configs=())) == ()


def test_pods_that_end_or_have_ended_and_those_of_the_system_are_left_out() -> None:
    ending = of_web("a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    ended = of_web("b", status={"phase": "Succeeded"})
    system = pod("gateway", namespace="headgate-system", annotations={SIDECAR: "transparent"})
    assert listed(ending, ended, system) == ()


def test_a_pod_has_the_state_of_its_proxy() -> None:
    proxy = Proxy(
        metadata=ObjectName(namespace="shop", name="web-5d4f-a"),
        node="sidecar/shop/web-5d4f-a",
        status=ProxyStatus(state="Lagging", message="it is late"),
    )
    (workload,) = listed(of_web("a"), of_web("b"), proxies=(proxy,))
    states = [(pod.proxy.state, pod.proxy.message) if pod.proxy else None for pod in workload.pods]
    assert states == [("Lagging", "it is late"), None]
