"""HorizontalPodAutoscalers in a store: what they write to their targets and to their own status, and their Events."""

from typing import Any

import pytest
from tests.api.metrics.metrics_world import FLOWS, FakeSource, stored
from tests.decoding import admit
from tests.make.objects import Object, container, deployment, obj, pod

from headgate.api.metrics.custom import CustomMetricsApi
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.resource_usage import Measurement, Usage
from headgate.errors import Unavailable
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Listing
from headgate.resources.meta import Key, timestamp
from headgate.resources.meta import Object as StoredObject
from headgate.standalone.controllers.autoscaler_metrics import AutoscalerMetrics
from headgate.standalone.controllers.autoscaling import Autoscaling
from headgate.standalone.store.memory import MemoryStore

NOW = 1_900_000_000.0
WEB = Key("apps", "Deployment", "default", "web")


TYPES = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


def typed(target: Object) -> Object:
    (field,) = target
    return {"type": TYPES[field], **target}


def custom(name: str, **target: Any) -> Object:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": typed(target)}}


def about(kind: str, name: str, metric: Object, **target: Any) -> Object:
    described = {"apiVersion": kind.rpartition(".")[0], "kind": kind.rpartition(".")[2], "name": name}
    return {"type": "Object", "object": {"metric": metric, "describedObject": described, "target": typed(target)}}


def usage(resource: str, **target: Any) -> Object:
    return {"type": "Resource", "resource": {"name": resource, "target": typed(target)}}


class Usages:
    """A source of the usage of pods, in cores; their memory is 2 MB."""

    def __init__(self) -> None:
        self.cores: dict[str, float] = {}

    async def measure(self) -> Measurement:
        containers = {
            Key("", "Pod", "default", name): {"main": Usage(cores, 2_000_000)} for name, cores in self.cores.items()
        }
        return Measurement(NOW, 5.0, {}, containers)


class FailingStore(MemoryStore):
    """A store that can't read the object `unreadable`, has a bug in reads of `broken`, and a phase of the wrong type in `odd`."""

    async def get(self, key: Key) -> StoredObject:
        if key.name == "unreadable":
            raise Unavailable("the disk is full")
        if key.name == "broken":
            raise RuntimeError("a bug")
        return await super().get(key)

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        listing = await super().list(group, kind, namespace)
        items = [
            {**item, "status": {"phase": 1}} if item["metadata"]["name"] == "odd" else item for item in listing.items
        ]
        return listing._replace(items=items)


class AutoscaledRig:
    """The store of `metrics_world`, whose Deployment `web` has two ready pods, with its autoscalers."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.source = FakeSource(FLOWS)  # 105 and 9 requests in 30 s
        self.usage = Usages()
        self.now = NOW
        metrics = AutoscalerMetrics(CustomMetricsApi(MetricsApi(store, self.source)), self.usage)
        recorder = EventRecorder(store, "headgate", clock=lambda: self.now)
        self.autoscaling = Autoscaling(store, recorder, metrics, clock=lambda: self.now)

    async def add(self, *metrics: Object, name: str = "web", target: str = "web", **spec: Any) -> None:
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
        written = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 9, "metrics": list(metrics), **spec}
        await self.store.create(obj("HorizontalPodAutoscaler", name, version="autoscaling/v2", spec=written))

    async def decide(self) -> None:
        await self.autoscaling.decide()

    async def replicas(self) -> int:
        return int((await self.store.get(WEB))["spec"]["replicas"])

    async def scale(self, replicas: int) -> None:
        web = await self.store.get(WEB)
        await self.store.update({**web, "spec": {**web["spec"], "replicas": replicas}})

    async def status(self, name: str = "web") -> Any:
        return (await self.store.get(Key("autoscaling", "HorizontalPodAutoscaler", "default", name)))["status"]

    async def conditions(self, name: str = "web") -> dict[str, tuple[str, str]]:
        rows = (await self.status(name))["conditions"]
        return {row["type"]: (row["status"], row["reason"]) for row in rows}

    async def events(self) -> list[tuple[str, str]]:
        return [(event["reason"], event["message"]) for event in (await self.store.list("", "Event")).items]


@pytest.fixture
async def rig() -> AutoscaledRig:
    store = await stored(FailingStore(admit=admit))
    for stored_pod in (await store.list("", "Pod")).items:
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(NOW - 3600)}
        status = {"phase": "Running", "startTime": timestamp(NOW - 3600), "conditions": [condition]}
        await store.update({**stored_pod, "status": status}, subresource="status")
    rig = AutoscaledRig(store)
    await rig.scale(2)
    web = await store.get(WEB)
    await store.update({**web, "status": {"replicas": 2}}, subresource="status")
    return rig


async def test_a_metric_of_pods_scales_up_at_once(rig: AutoscaledRig) -> None:
    await rig.add(custom("requests_per_second", averageValue="1"))  # 3.5 and 0.3 per second: the mean is 1.9
    await rig.decide()
    assert await rig.replicas() == 4
    status = await rig.status()
    assert (status["currentReplicas"], status["desiredReplicas"]) == (2, 4)
    assert status["lastScaleTime"] == timestamp(NOW)
    assert status["currentMetrics"] == [
        {"type": "Pods", "pods": {"metric": {"name": "requests_per_second"}, "current": {"averageValue": "1900m"}}}
    ]
    assert await rig.conditions() == {
        "AbleToScale": ("True", "SucceededRescale"),
        "ScalingActive": ("True", "ValidMetricFound"),
        "ScalingLimited": ("False", "DesiredWithinRange"),
    }
    reason = "New size: 4; reason: pods metric requests_per_second above target"
    assert await rig.events() == [("SuccessfulRescale", reason)]


async def test_scaling_down_waits_for_the_stabilization_window(rig: AutoscaledRig) -> None:
    await rig.add(custom("requests_per_second", averageValue="100"))
    await rig.decide()
    assert await rig.replicas() == 2
    assert (await rig.conditions())["AbleToScale"] == ("True", "ScaleDownStabilized")
    rig.now += 301
    await rig.decide()
    assert await rig.replicas() == 1
    assert ("SuccessfulRescale", "New size: 1; reason: All metrics below target") in await rig.events()


async def test_metrics_of_objects_scale_by_their_value_or_by_their_average(rig: AutoscaledRig) -> None:
    rate = {"name": "requests_per_second"}
    await rig.add(
        about("v1.Service", "web-v1", rate, value="1"), about("apps/v1.Deployment", "web", rate, averageValue="1")
    )
    await rig.decide()
    first, second = (metric["object"]["current"] for metric in (await rig.status())["currentMetrics"])
    assert second == {"averageValue": "1900m"}  # 3.8 for two replicas
    assert first["value"] == "3333m"
    assert await rig.replicas() == 6  # ceil(3.3 * 2 ready pods) are 7, of which the default policies allow 6


async def test_the_backend_of_a_split_is_selected_by_a_label(rig: AutoscaledRig) -> None:
    metric = {"name": "requests_per_second", "selector": {"matchLabels": {"backend": "web-v2"}}}
    await rig.add(about("split.smi-spec.io/v1alpha4.TrafficSplit", "canary", metric, value="300m"))
    await rig.decide()
    assert (await rig.status())["currentMetrics"][0]["object"]["current"] == {"value": "300m"}


async def test_the_usage_scales_by_utilization_and_by_average(rig: AutoscaledRig) -> None:
    web = await rig.store.get(WEB)
    asked = container("main", resources={"requests": {"cpu": "500m"}})
    for name in ("web-5d-c4c4c", "web-5d-d5d5d"):
        stored_pod = await rig.store.get(Key("", "Pod", "default", name))
        await rig.store.update({**stored_pod, "spec": {**stored_pod["spec"], "containers": [asked]}})
    assert web["spec"]["replicas"] == 2
    rig.usage.cores = {"web-5d-c4c4c": 0.4, "web-5d-d5d5d": 0.2}
    memory = usage("memory", averageValue="1M")
    inner = {**usage("cpu", averageUtilization=30)["resource"], "container": "main"}
    await rig.add(
        usage("cpu", averageUtilization=30), memory, {"type": "ContainerResource", "containerResource": inner}
    )
    await rig.decide()
    assert await rig.replicas() == 4
    assert (await rig.status())["currentMetrics"] == [
        {
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": 60, "averageValue": "300m"}},
        },
        {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "2000000"}}},
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "main",
                "current": {"averageUtilization": 60, "averageValue": "300m"},
            },
        },
    ]


async def test_a_missing_metric_keeps_the_replicas_and_is_reported_once(rig: AutoscaledRig) -> None:
    await rig.add(usage("cpu", averageUtilization=50))
    for _ in range(3):
        await rig.decide()
    assert await rig.replicas() == 2
    assert (await rig.conditions())["ScalingActive"] == ("False", "FailedGetResourceMetric")
    assert (await rig.status())["currentMetrics"] == [{"type": ""}]
    reasons = [reason for reason, _ in await rig.events()]
    assert sorted(reasons) == ["FailedComputeMetricsReplicas", "FailedGetResourceMetric"]
    counts = [event["count"] for event in (await rig.store.list("", "Event")).items]
    assert counts == [1, 1]


async def test_with_one_missing_metric_the_other_metrics_scale_up_only(rig: AutoscaledRig) -> None:
    lost = custom("no_such_metric", averageValue="1")
    unstabilized = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    await rig.add(lost, custom("requests_per_second", averageValue="100"), behavior=unstabilized)
    await rig.decide()
    assert await rig.replicas() == 2
    assert (await rig.conditions())["ScalingActive"] == ("False", "FailedGetPodsMetric")
    await rig.store.delete(Key("autoscaling", "HorizontalPodAutoscaler", "default", "web"))
    await rig.add(lost, custom("requests_per_second", averageValue="1"))
    await rig.decide()
    assert await rig.replicas() == 4
    assert (await rig.conditions())["ScalingActive"] == ("True", "ValidMetricFound")


@pytest.mark.parametrize(("replicas", "becomes"), [(12, 9), (1, 2)])
async def test_replicas_outside_the_limits_are_corrected_without_metrics(
    rig: AutoscaledRig, replicas: int, becomes: int
) -> None:
    rig.source.fails = "no traffic"
    await rig.add(custom("requests_per_second", averageValue="1"), minReplicas=2)
    await rig.scale(replicas)
    await rig.decide()
    assert await rig.replicas() == becomes


async def test_a_target_with_0_replicas_is_left_alone(rig: AutoscaledRig) -> None:
    await rig.add(custom("requests_per_second", averageValue="1"))
    await rig.scale(0)
    await rig.decide()
    assert await rig.replicas() == 0
    assert (await rig.conditions())["ScalingActive"] == ("False", "ScalingDisabled")


async def test_two_autoscalers_of_the_same_pods_scale_nothing(rig: AutoscaledRig) -> None:
    for name in ("one", "two"):
        await rig.add(custom("requests_per_second", averageValue="1"), name=name)
    await rig.decide()
    assert await rig.replicas() == 2
    for name in ("one", "two"):
        assert (await rig.conditions(name))["ScalingActive"] == ("False", "AmbiguousSelector")
    assert "multiple HPAs: one, two" in dict(await rig.events())["AmbiguousSelector"]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "name": "lost"}, "lost"),
        ({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web"}, "is none of the kinds Deployment"),
    ],
)
async def test_a_target_that_cannot_be_scaled_is_named_and_appears_later(
    rig: AutoscaledRig, reference: Object, words: str
) -> None:
    await rig.add(custom("requests_per_second", averageValue="1"), scaleTargetRef=reference)
    await rig.decide()
    assert (await rig.conditions())["AbleToScale"] == ("False", "FailedGetScale")
    assert words in dict(await rig.events())["FailedGetScale"]
    if reference["kind"] == "Deployment":
        await rig.store.create(deployment("lost", container("main")))
        await rig.store.create(pod("lost-1", "127.77.200.9", labels={"app": "lost"}))
        await rig.decide()
        assert (await rig.conditions())["AbleToScale"] == ("True", "SucceededGetScale")


@pytest.mark.parametrize(("target", "level"), [("unreadable", "WARNING"), ("broken", "ERROR")])
async def test_a_failure_of_one_target_does_not_stop_other_autoscalers(
    rig: AutoscaledRig, caplog: pytest.LogCaptureFixture, target: str, level: str
) -> None:
    await rig.add(custom("requests_per_second", averageValue="1"), name="first", target=target)
    await rig.add(custom("requests_per_second", averageValue="1"))
    await rig.decide()
    assert await rig.replicas() == 4
    (record,) = caplog.records
    assert record.levelname == level
    assert "HorizontalPodAutoscaler default/first" in record.message


async def test_a_pod_that_cannot_be_read_stops_only_its_own_autoscaler(rig: AutoscaledRig) -> None:
    await rig.store.create(deployment("bad", container("main")))
    await rig.store.create(pod("odd", labels={"app": "bad"}))
    await rig.add(custom("requests_per_second", averageValue="1"), name="bad", target="bad")
    await rig.add(custom("requests_per_second", averageValue="1"))
    await rig.decide()
    assert await rig.replicas() == 4
    assert (await rig.conditions("bad"))["AbleToScale"] == ("False", "FailedGetScale")


async def test_a_metric_of_all_objects_of_a_kind_is_refused(rig: AutoscaledRig) -> None:
    await rig.add(about("v1.Service", "*", {"name": "requests_per_second"}, value="1"))
    await rig.decide()
    assert (await rig.conditions())["ScalingActive"] == ("False", "FailedGetObjectMetric")
    assert "must be the name of an object" in dict(await rig.events())["FailedGetObjectMetric"]


@pytest.mark.parametrize(
    ("type", "reason"),
    [("External", "FailedGetExternalMetric"), ("Resource", "FailedGetResourceMetric"), ("Pods", "FailedGetPodsMetric")],
)
async def test_only_the_source_that_the_type_names_counts(rig: AutoscaledRig, type: str, reason: str) -> None:
    """An older version may have stored an autoscaler with several sources."""
    other = usage("cpu", averageValue="1m") if type == "Pods" else custom("requests_per_second", averageValue="1")
    rig.usage.cores = {"web-5d-c4c4c": 0.4, "web-5d-d5d5d": 0.2}
    await rig.add({**other, "type": type})
    await rig.decide()
    assert await rig.replicas() == 2
    assert (await rig.conditions())["ScalingActive"] == ("False", reason)
