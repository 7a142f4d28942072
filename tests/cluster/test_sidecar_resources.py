"""Pods with sidecars on a real API server: LimitRanges accept them, and its default values make no sidecar outdated."""

import itertools
from collections.abc import Mapping

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.make.objects import container, obj, pod

from headgate.admission.injection import PodNamespace
from headgate.admission.outdated_sidecars import outdated_messages
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.errors import HeadgateError
from headgate.resources.meta import Object

OPTIONS = {"image": "headgate:1", "xds": "headgate:15010"}
LABELED = PodNamespace(labels={"headgate.dev/inject": "true"}, configs=())
PROBE = {"httpGet": {"path": "/", "port": 8080}}
_numbers = itertools.count(1)


@pytest.fixture
def namespace(cluster: KubeApiServer) -> str:
    """Return a namespace without a label, for which no webhook adds sidecars."""
    name = f"resources{next(_numbers)}"
    cluster.namespace(name)
    return name


def web_pod(namespace: str) -> Object:
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
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
        for limits in ([], ranges)
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.client() as client:
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account(namespace))
        await client.post(f"/api/v1/namespaces/{namespace}/limitranges", ranges[0])
        with pytest.raises(HeadgateError, match="maximum memory usage per Container is 512Mi"):
            await client.post(pods, plain.create(web_pod(namespace), LABELED, True))
        stored = await client.post(pods, fitting.create(web_pod(namespace), LABELED, True))
    assert outdated_messages(stored, fitting, LABELED) == ()


def account(namespace: str) -> Object:
    return obj("ServiceAccount", "default", namespace=namespace)
