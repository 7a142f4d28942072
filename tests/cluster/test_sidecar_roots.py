"""The ConfigMap with the roots of sidecars, on a real API server: other clients delete and edit it, and its namespace."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.api_server import MERGE, KubeApiServer, controller
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.make.objects import container, headgate_keys, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
STRANGE = {"roots.pem": "the root of another client"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(cluster: KubeApiServer) -> AsyncIterator[KubeApiServer]:
    """An API server with the controller that empties and removes deleted namespaces.

    No Service is reachable here, and a namespace is not removed while an aggregated API does not respond.
    """
    _, listed = cluster.call("GET", f"{API_SERVICES}?labelSelector=app.kubernetes.io/name")
    assert cluster.call("DELETE", f"{API_SERVICES}?labelSelector=app.kubernetes.io/name")[0] == 200
    with controller(cluster, "namespace"):
        yield cluster
    for service in listed["items"]:
        metadata = {name: service["metadata"][name] for name in ("name", "labels")}
        cluster.make(API_SERVICES, {"metadata": metadata, "spec": service["spec"]})


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def plane(cluster: KubeApiServer) -> AsyncIterator[RunningReplica]:
    with pytest.MonkeyPatch.context() as patch:
        async with running(cluster, patch) as found:
            await eventually(found.served)
            yield found


def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/headgate-roots"


def roots_of(cluster: KubeApiServer, namespace: str) -> Any:
    """Return the ConfigMap of a namespace; None if it does not exist."""
    status, answer = cluster.call("GET", path(namespace))
    return answer if status == 200 else None


async def meshed(cluster: KubeApiServer, namespace: str) -> Any:
    """Create a namespace and a pod with a sidecar in it; return the ConfigMap with the roots, once its write is recorded."""
    cluster.namespace(namespace)
    count = writes(cluster, namespace)
    web = pod(
        "web-1",
        namespace=namespace,
        account="web",
        annotations=headgate_keys(sidecar_mode="transparent"),
        containers=[container(image="web")],
    )
    cluster.make(f"/api/v1/namespaces/{namespace}/pods", web)
    made = await eventually(lambda: roots_of(cluster, namespace))
    await eventually(lambda: writes(cluster, namespace) > count)
    return made


def writes(cluster: KubeApiServer, namespace: str) -> int:
    """Return the number of the control plane's writes of the ConfigMap, successful or not."""
    return cluster.audit_log.attempts("configmaps", namespace, "headgate-roots", "patch", "delete")


async def test_a_deleted_config_map_is_created_again(cluster: KubeApiServer) -> None:
    before = await meshed(cluster, "deleted")
    assert cluster.call("DELETE", path("deleted"))[0] == 200
    after = await eventually(lambda: roots_of(cluster, "deleted"))
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["data"] == before["data"]
    await eventually(lambda: writes(cluster, "deleted") == 2)


async def test_edited_roots_are_restored_with_one_write(cluster: KubeApiServer) -> None:
    before = await meshed(cluster, "edited")
    for patch in ({"data": STRANGE}, {"data": None}, {"data": {"roots.pem": ""}}):
        count = writes(cluster, "edited")
        status, answer = cluster.call("PATCH", path("edited"), patch, content_type=MERGE)
        assert status == 200, answer
        await eventually(lambda: roots_of(cluster, "edited").get("data") == before["data"])
        await eventually(lambda count=count: writes(cluster, "edited") == count + 1)


@pytest.mark.parametrize(
    "content", [{"data": STRANGE, "immutable": True}, {"data": None, "binaryData": {"roots.pem": "c3RyYW5nZQ=="}}]
)
async def test_a_config_map_that_rejects_the_roots_is_replaced(cluster: KubeApiServer, content: Any) -> None:
    namespace = "immutable" if "immutable" in content else "binary"
    before = await meshed(cluster, namespace)
    assert cluster.call("PATCH", path(namespace), content, content_type=MERGE)[0] == 200
    after = await eventually(
        lambda: (map_ := roots_of(cluster, namespace)) and map_.get("data") == before["data"] and map_
    )
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_namespace_that_is_created_again_gets_the_roots_again(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """No write is attempted while the namespace is terminating, and none fails."""
    start = len(plane.log)
    before = await meshed(cluster, "again")
    assert cluster.call("DELETE", "/api/v1/namespaces/again")[0] == 200
    await eventually(lambda: cluster.call("GET", "/api/v1/namespaces/again")[0] == 404)
    after = await meshed(cluster, "again")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["data"] == before["data"]
    assert not [line for line in plane.log[start:] if "root certificates" in line]


async def test_nothing_is_written_for_equal_roots(cluster: KubeApiServer) -> None:
    """Another client adds a label and a key, and pods come and go."""
    await meshed(cluster, "equal")
    count = writes(cluster, "equal")
    more = {"metadata": {"labels": {"more": "yes"}}, "data": {"more": "yes"}}
    assert cluster.call("PATCH", path("equal"), more, content_type=MERGE)[0] == 200
    cluster.pod("equal", "web-2")
    await meshed(cluster, "later")
    assert writes(cluster, "equal") == count == 1
    assert roots_of(cluster, "equal")["data"]["more"] == "yes"
