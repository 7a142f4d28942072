"""A sidecar has what the ResourceQuotas of its namespace demand, and users learn of quotas that have no room for its pod."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.make.objects import container, deployment, pod

from headgate.admission.namespace_limits import NamespaceLimits
from headgate.admission.resource_quotas import applying, completed, completion_warnings, excess_warnings
from headgate.admission.review import review
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.resources.meta import Object

DEFAULT = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
EMPTY: Mapping[str, Mapping[str, str]] = {"requests": {}, "limits": {}}
NO_SCOPE: Mapping[str, Any] = {}
CPU = {"containers": [container("c", resources={"requests": {"cpu": "1m"}})]}


def quota(hard: Mapping[str, str], used: Mapping[str, str] | None = None, **scopes: Any) -> Object:
    status = {"hard": hard, "used": used} if used else {}
    return {"metadata": {"name": "small", "namespace": "shop"}, "spec": {"hard": hard, **scopes}, "status": status}


def of_class(operator: str, *values: str) -> Mapping[str, Any]:
    expression = {"scopeName": "PriorityClass", "operator": operator, **({"values": list(values)} if values else {})}
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("resources", "hard", "requests", "limits"),
    [
        (DEFAULT, ["pods", "requests.cpu", "memory", "limits.memory"], DEFAULT["requests"], DEFAULT["limits"]),
        (DEFAULT, ["limits.cpu"], DEFAULT["requests"], {"cpu": "2", "memory": "1Gi"}),
        (EMPTY, ["cpu", "requests.memory"], {"cpu": "20m", "memory": "64Mi"}, {}),
        (EMPTY, ["limits.cpu"], {"cpu": "20m"}, {"cpu": "2"}),
        (EMPTY, ["limits.memory", "memory"], {"memory": "64Mi"}, {"memory": "1Gi"}),
        ({"requests": {"cpu": "3"}, "limits": {}}, ["limits.cpu"], {"cpu": "3"}, {"cpu": "3"}),
        ({"requests": {}, "limits": {"cpu": "100m"}}, ["cpu"], {}, {"cpu": "100m"}),
    ],
)
def test_a_sidecar_gets_the_values_that_a_quota_demands_and_keeps_those_that_it_has(
    resources: Mapping[str, Mapping[str, str]],
    hard: list[str],
    requests: Mapping[str, str],
    limits: Mapping[str, str],
) -> None:
    quotas = [quota(dict.fromkeys(hard, "10"))]
    assert completed(resources, quotas, "2") == {"requests": requests, "limits": limits}


@pytest.mark.parametrize(
    ("scopes", "spec", "counts"),
    [
        (NO_SCOPE, {}, True),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, CPU, True),
        ({"scopes": ["NotBestEffort"]}, {}, False),
        ({"scopes": ["NotBestEffort"]}, {"resources": {"limits": {"memory": "1Gi"}}}, True),
        ({"scopes": ["NotBestEffort"]}, {"containers": [container("c", resources={"requests": {"cpu": "0"}})]}, False),
        ({"scopes": ["BestEffort"]}, CPU, False),
        ({"scopes": ["NotTerminating"]}, {"activeDeadlineSeconds": 5}, False),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["BestEffort"]}, {}, True),
        ({"scopes": ["PriorityClass"]}, {"priorityClassName": "high"}, True),
        ({"scopes": ["PriorityClass"]}, {}, False),
        (of_class("In", "high"), {"priorityClassName": "high"}, True),
        (of_class("In", "high"), {"priorityClassName": "low"}, False),
        (of_class("NotIn", "high"), {}, True),
        (of_class("NotIn", "high"), {"priorityClassName": "high"}, False),
        (of_class("DoesNotExist"), {}, True),
        (of_class("DoesNotExist"), {"priorityClassName": "low"}, False),
    ],
)
def test_a_quota_counts_the_pods_in_its_scopes(scopes: Mapping[str, Any], spec: Object, counts: bool) -> None:
    quotas = [quota({"limits.cpu": "1"}, **scopes)]
    assert applying(quotas, {"spec": spec}) == (quotas if counts else [])


def needing(limit: str, **fields: Any) -> Object:
    return container("c", resources={"limits": {"memory": limit}}, **fields)


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"containers": [needing("1Gi"), needing("2Gi")]}, "3072Mi"),
        ({"containers": [needing("1Gi")], "initContainers": [needing("4Gi"), needing("3Gi")]}, "4096Mi"),
        ({"containers": [needing("1Gi")], "initContainers": [needing("2Gi", restartPolicy="Always")]}, "3072Mi"),
        (
            {
                "containers": [needing("1Gi")],
                "initContainers": [needing("2Gi", restartPolicy="Always"), needing("3Gi")],
            },
            "5120Mi",
        ),
        ({"containers": [needing("1Gi")], "overhead": {"memory": "1Gi"}}, "2048Mi"),
        (
            {
                "containers": [needing("1Gi")],
                "resources": {"limits": {"memory": "3Gi"}, "requests": {"memory": "3Gi"}},
            },
            "3072Mi",
        ),
    ],
)
def test_a_pod_needs_what_kubernetes_counts(spec: Object, needed: str) -> None:
    (limit,) = excess_warnings({"spec": spec}, [quota({"limits.memory": "1Mi"})])
    (request,) = excess_warnings({"spec": spec}, [quota({"memory": "1Mi"})])  # a limit is the missing request
    assert f"needs {needed}:" in limit
    if "overhead" not in spec:
        assert f"needs {needed}:" in request


def test_the_writer_of_a_workload_learns_of_values_for_a_quota_and_of_a_quota_without_room() -> None:
    hard = {"limits.cpu": "2", "limits.memory": "2Gi", "pods": "3", "configmaps": "1"}
    full = quota(hard, {"limits.cpu": "100m", "limits.memory": "1536Mi", "pods": "3", "configmaps": "1"})
    sidecars = transparent_sidecars(
        "all",
        SidecarOptions(image="i", xds="x:1"),
        limits=lambda name: NamespaceLimits(quotas=[full] if name == "shop" else []),
    )
    assert review(deployment("web", namespace="shop"), None, NoObjects(), sidecars).warnings == (
        (
            "the sidecar gets the cpu limit 1, because the ResourceQuota small needs one of each container; set"
            " headgate.dev/proxy-cpu-limit for another value"
        ),
        (
            "the ResourceQuota small has 512Mi of 2Gi limits.memory left, and a pod with its sidecar needs 1024Mi: meanwhile the API"
            " server refuses new pods; raise the quota, or set headgate.dev/proxy-memory-limit lower"
        ),
        (
            "the ResourceQuota small has 0 of 3 pods left, and a pod with its sidecar needs 1: meanwhile the API server refuses new"
            " pods; raise the quota"
        ),
    )
    assert review(deployment("web", namespace="other"), None, NoObjects(), sidecars).warnings == ()
    assert review(pod("web", namespace="shop"), None, NoObjects(), sidecars).object["spec"]["containers"][0][
        "resources"
    ] == {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def test_the_values_of_a_whole_pod_satisfy_a_quota() -> None:
    limits = NamespaceLimits(quotas=[quota({"limits.cpu": "2"})])
    sidecars = transparent_sidecars("all", SidecarOptions(image="i", xds="x:1"), limits=lambda _: limits)
    written = deployment("web", namespace="shop")
    assert review(written, None, NoObjects(), sidecars).warnings
    template = written["spec"]["template"]
    stated = {**template, "spec": {**template["spec"], "resources": {"limits": {"cpu": "1"}}}}
    whole = {**written, "spec": {**written["spec"], "template": stated}}
    assert review(whole, None, NoObjects(), sidecars).warnings == ()


def test_a_warning_names_the_quotas_that_demand_the_value() -> None:
    cpu, memory = quota({"limits.cpu": "2"}), quota({"memory": "1Gi"})
    memory = {**memory, "metadata": {"name": "other"}}
    after = completed(EMPTY, [cpu, memory], "2")
    texts = list(completion_warnings(EMPTY, after, [cpu, memory]))
    assert [text.partition("; set")[0] for text in texts] == [
        "the sidecar gets the cpu request 20m, because the ResourceQuota small needs a limit of each container",
        "the sidecar gets the memory request 64Mi, because the ResourceQuota other needs one of each container",
        "the sidecar gets the cpu limit 2, because the ResourceQuota small needs one of each container",
    ]


class NoObjects:
    """A view without objects."""

    def get(self, _key: object) -> None:
        return None

    def select(self, _group: str, _kind: str, _namespace: str) -> list[Object]:
        return []
