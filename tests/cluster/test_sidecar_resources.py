"""Pods with sidecars on a real API server: LimitRanges and ResourceQuotas accept them, and its default values make no sidecar outdated."""

import itertools
from collections.abc import Mapping

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.cluster.control_planes import eventually
from tests.make.objects import container, obj, pod

from headgate.admission.injection import PodNamespace
from headgate.admission.namespace_limits import NamespaceLimits
from headgate.admission.outdated_sidecars import outdated_messages
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.errors import HeadgateError
from headgate.kubernetes.client import Client
from headgate.resources.core.proxy_annotations import MEMORY, MEMORY_LIMIT
from headgate.resources.meta import Object

OPTIONS = {"image": "headgate:1", "xds": "headgate:15010"}
LABELED = PodNamespace(labels={"headgate.dev/inject": "true"}, configs=())
HARD = {"limits.cpu": "4", "limits.memory": "4Gi", "requests.cpu": "1", "requests.memory": "1Gi", "pods": "9"}
PROBE = {"httpGet": {"path": "/", "port": 8080}}
_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: KubeApiServer) -> str:
    """Return a namespace without a label, for which no webhook adds sidecars."""
    name = f"resources{next(_numbers)}"
    cluster.namespace(name)
    return name


def web_pod(namespace: str) -> Object:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}
    web = container("web", 8080, image="web:1", readinessProbe=PROBE, resources=resources)
    return pod(
        "web",
        namespace=namespace,
        account="default",
        labels={"app": "web"},
        containers=[web],
        automountServiceAccountToken=False,
    )


def limit_range(namespace: str, **bounds: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "small", "namespace": namespace},
        "spec": {"limits": [{"type": "Container", **bounds}]},
    }


async def test_a_new_pod_is_not_outdated_and_one_of_another_image_is(cluster: KubeApiServer, namespace: str) -> None:
    now, later = (
        transparent_sidecars("labelled", SidecarOptions(image=image, xds="headgate:15010"))
        for image in ("headgate:1", "headgate:2")
    )
    created = now.create(web_pod(namespace), LABELED, True)
    async with cluster.client() as client:
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account(namespace))
        stored = await client.post(f"/api/v1/namespaces/{namespace}/pods", created)
    assert outdated_messages(stored, now, LABELED) == ()
    assert outdated_messages(stored, later, LABELED) == ("image headgate:1, now headgate:2",)


async def test_a_namespace_with_a_limit_range_accepts_a_fitted_sidecar_only(
    cluster: KubeApiServer, namespace: str
) -> None:
    ranges = [
        limit_range(
            namespace,
            max={"memory": "512Mi", "cpu": "1"},
            default={"cpu": "200m", "memory": "128Mi"},
            maxLimitRequestRatio={"memory": "4"},
        )
    ]
    plain, fitting = (
        transparent_sidecars("labelled", SidecarOptions(**OPTIONS), limits=lambda _, limits=limits: limits)
        for limits in (NamespaceLimits(), NamespaceLimits(ranges))
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.client() as client:
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account(namespace))
        await client.post(f"/api/v1/namespaces/{namespace}/limitranges", ranges[0])
        with pytest.raises(HeadgateError, match="maximum memory usage per Container is 512Mi"):
            await client.post(pods, plain.create(web_pod(namespace), LABELED, True))
        stored = await client.post(pods, fitting.create(web_pod(namespace), LABELED, True))
    assert outdated_messages(stored, fitting, LABELED) == ()


async def test_a_namespace_accepts_pods_whose_sidecars_are_above_a_maximum_for_pods_only_after_the_warning(
    cluster: KubeApiServer, namespace: str
) -> None:
    """A LimitRange with only a minimum for containers raises the sidecar, and the maximum for pods counts all containers."""
    limits = [{"type": "Container", "min": {"memory": "16Mi"}}, {"type": "Pod", "max": {"memory": "512Mi"}}]
    ranges = [{**limit_range(namespace), "spec": {"limits": limits}}]
    default, smaller = (
        transparent_sidecars(
            "labelled", SidecarOptions(**OPTIONS, proxy=proxy), limits=lambda _: NamespaceLimits(ranges)
        )
        for proxy in ({}, {MEMORY: "8Mi", MEMORY_LIMIT: "256Mi"})
    )
    async with cluster.client() as client:
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account(namespace))
        await client.post(f"/api/v1/namespaces/{namespace}/limitranges", ranges[0])
        with pytest.raises(HeadgateError, match="maximum memory usage per Pod is 512Mi"):
            await client.post(f"/api/v1/namespaces/{namespace}/pods", default.create(web_pod(namespace), LABELED, True))
        made = smaller.create(web_pod(namespace), LABELED, True)
        stored = await client.post(f"/api/v1/namespaces/{namespace}/pods", made)
    (warning,) = default.warn(web_pod(namespace), LABELED)
    assert warning.startswith(
        "the LimitRange small allows pods with at most 512Mi of memory, and a pod with its sidecar"
    )
    assert outdated_messages(stored, smaller, LABELED) == ()


async def with_quota(client: Client, namespace: str, used: Mapping[str, str]) -> Object:
    """Store a ResourceQuota, and the status that Kubernetes' controller writes; return it."""
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    metadata = {"name": "small", "namespace": namespace}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": HARD}}
    created = await client.post(quotas, quota)
    return await client.put(f"{quotas}/small/status", {**created, "status": {"hard": HARD, "used": used}})


async def is_refused(client: Client, pod: Object, reason: str) -> bool:
    """Return whether the API server refuses a pod for a reason. Its admission reads the status of a quota by a watch."""
    try:
        await client.post(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod, dryRun="All")
    except HeadgateError as error:
        return reason in str(error)
    return False


async def test_a_namespace_with_a_quota_accepts_a_completed_sidecar_only(
    cluster: KubeApiServer, namespace: str
) -> None:
    pods, options = f"/api/v1/namespaces/{namespace}/pods", SidecarOptions(**OPTIONS)
    async with cluster.client() as client:
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account(namespace))
        quota = await with_quota(client, namespace, dict.fromkeys(HARD, "0"))
        plain, completed = (
            transparent_sidecars("labelled", options, limits=lambda _, limits=limits: limits)
            for limits in (NamespaceLimits(), NamespaceLimits(quotas=[quota]))
        )
        refused = plain.create(web_pod(namespace), LABELED, True)
        await eventually(lambda: is_refused(client, refused, "failed quota: small: must specify limits.cpu"))
        stored = await client.post(pods, completed.create(web_pod(namespace), LABELED, True))
    assert outdated_messages(stored, completed, LABELED) == ()
    assert list(completed.warn(web_pod(namespace), LABELED)) == [
        (
            "the sidecar gets the cpu limit 1, because the ResourceQuota small needs one of each container; set"
            " headgate.dev/proxy-cpu-limit for another value"
        )
    ]


async def test_a_pod_that_the_quota_refuses_has_a_warning_with_the_same_amount(
    cluster: KubeApiServer, namespace: str
) -> None:
    used = {**dict.fromkeys(HARD, "0"), "limits.memory": "3Gi"}
    async with cluster.client() as client:
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account(namespace))
        quota = await with_quota(client, namespace, used)
        sidecars = transparent_sidecars(
            "labelled", SidecarOptions(**OPTIONS), limits=lambda _: NamespaceLimits(quotas=[quota])
        )
        pod = sidecars.create(web_pod(namespace), LABELED, True)
        amounts = "requested: limits.memory=1088Mi, used: limits.memory=3Gi, limited: limits.memory=4Gi"
        await eventually(lambda: is_refused(client, pod, f"exceeded quota: small, {amounts}"))
    (_, warning) = sidecars.warn(web_pod(namespace), LABELED)
    assert warning.startswith(
        "the ResourceQuota small has 1024Mi of 4Gi limits.memory left, and a pod with its sidecar needs 1088Mi: meanwhile"
    )


def account(namespace: str) -> Object:
    return obj("ServiceAccount", "default", namespace=namespace)
