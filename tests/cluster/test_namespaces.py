"""A mesh that is limited to namespaces: the control plane has permissions only there, and needs no more."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec import structs
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.cluster.installation import VALUES, install, on_this_machine
from tests.make.objects import gateway, split

from headgate.admission.injection import NAMESPACE_NAME
from headgate.errors import HeadgateError
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import manifests
from headgate.kubernetes.install.roles import roles
from headgate.kubernetes.permissions import MissingPermissions
from headgate.options import MeshOptions
from headgate.resources.core.pod_metadata import INJECT

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ("shop", "pay")
LIMITED = structs.replace(VALUES, options={**VALUES.options, "namespaces": ",".join(NAMES)})
GATEWAYS = "/apis/gateway.networking.k8s.io/v1"
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces"
METRICS = "/apis/traffic.metrics.k8s.io/v1beta1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(cluster: KubeApiServer) -> AsyncIterator[KubeApiServer]:
    """An API server with an installation for two of its namespaces, and the other installation afterwards."""
    for name in (*NAMES, "other"):
        cluster.namespace(name)
    await install(cluster, LIMITED)
    yield cluster
    await install(cluster)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(cluster: KubeApiServer) -> AsyncIterator[RunningReplica]:
    """A replica that is active."""
    with pytest.MonkeyPatch.context() as patch:
        async with running(cluster, patch, namespaces=NAMES) as found:
            await eventually(found.served)
            yield found


def create_split(cluster: KubeApiServer, namespace: str, name: str) -> str:
    """Create a TrafficSplit without Services, which is a mistake; return its path."""
    collection = f"{SPLITS}/{namespace}/trafficsplits"
    cluster.make(collection, split("website", {"website-v1": 1}, name=name, namespace=namespace))
    return f"{collection}/{name}"


def conditions(cluster: KubeApiServer, path: str) -> Any:
    code, found = cluster.call("GET", path)
    return (found.get("status") or {}).get("conditions") if code == 200 else None


async def test_objects_of_these_namespaces_have_effect_and_those_elsewhere_have_none(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    outside = create_split(cluster, "other", "canary")
    inside = [create_split(cluster, namespace, "canary") for namespace in NAMES]
    await eventually(lambda: all(conditions(cluster, path) for path in inside))
    assert conditions(cluster, outside) is None
    findings = (await eventually(lambda: plane.get("/apis/inspect.headgate.dev/v1beta1/findings")))["items"]
    splits = [item["object"] for item in findings if item["object"]["kind"] == "TrafficSplit"]
    assert {item["namespace"] for item in splits} == set(NAMES)


async def test_changes_in_each_namespace_are_watched(cluster: KubeApiServer, plane: RunningReplica) -> None:
    """The watches of the namespaces continue from the versions of their lists."""
    for namespace in (*NAMES, *NAMES):
        path = create_split(cluster, namespace, "later")
        await eventually(lambda path=path: conditions(cluster, path), of=path)
        assert cluster.call("DELETE", path)[0] == 200


async def test_no_permission_is_missing_and_no_request_goes_elsewhere(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """A Gateway gets its proxy, a pod the roots, and metrics their objects, with Roles in the namespaces only."""
    cluster.make(f"{GATEWAYS}/namespaces/shop/gateways", gateway("edge", namespace="shop"))
    metadata = {"name": "web-1", "annotations": {"headgate.dev/sidecar-mode": "transparent"}}
    spec = {"serviceAccountName": "web", "containers": [{"name": "web", "image": "web"}]}
    cluster.make("/api/v1/namespaces/pay/pods", {"metadata": metadata, "spec": spec})
    await eventually(lambda: conditions(cluster, f"{GATEWAYS}/namespaces/shop/gateways/edge"))
    await eventually(lambda: conditions(cluster, f"{GATEWAYS}/gatewayclasses/headgate"))
    await eventually(lambda: cluster.call("GET", "/api/v1/namespaces/pay/configmaps/headgate-roots")[0] == 200)
    for kind in ("pods", "deployments", "nodes", "jobs"):
        assert "items" in await eventually(lambda kind=kind: plane.get(f"{METRICS}/{kind}"))
    deployments = "/apis/apps/v1/namespaces/headgate-system/deployments"
    await eventually(lambda: len(cluster.call("GET", deployments)[1]["items"]) == 2)
    await eventually(plane.has_all_permissions)
    missing = MissingPermissions(roles(MeshOptions(namespaces=tuple(NAMES))))
    for permission in cluster.audit_log.permissions():
        missing.add(permission)
    assert missing.current.get() <= missing.needed
    of_mesh = {permission.namespace for permission in missing.current.get()}
    assert of_mesh <= {"", *NAMES, "default", "headgate-system", "kube-system"}


async def test_webhooks_are_called_for_these_namespaces_only(cluster: KubeApiServer) -> None:
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        found = cluster.call("GET", f"/apis/admissionregistration.k8s.io/v1/{kind}/headgate")[1]
        for hook in found["webhooks"]:
            wanted = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(NAMES)}
            assert wanted in hook["namespaceSelector"]["matchExpressions"]


def label(cluster: KubeApiServer, namespace: str, **labels: str | None) -> None:
    body = {"metadata": {"labels": labels}}
    cluster.call("PATCH", f"/api/v1/namespaces/{namespace}", body, content_type=MERGE)


async def test_a_pod_is_explained_as_the_webhooks_treat_new_pods(cluster: KubeApiServer, plane: RunningReplica) -> None:
    """Kubernetes 1.20 does not label namespaces with their names, so the label `headgate.dev/inject` has no effect."""

    async def decided(setting: str) -> Any:
        found = await plane.get("/apis/inspect.headgate.dev/v1beta1/namespaces/shop/pods/explained/sidecar")
        return found if found.get("decision", {}).get("setting") == setting else None

    label(cluster, "shop", **{INJECT: "true"})
    # The webhook for namespaces with this label fails closed, and no replica serves it here: a call would fail.
    cluster.pod("shop", "explained")
    found = await eventually(lambda: decided("NamespaceName"))
    assert not found["decision"]["injected"]
    assert found["decision"]["message"].startswith("the namespace shop has no label kubernetes.io/metadata.name")
    assert found["adviceMessages"] == [
        "to add a sidecar, run: kubectl label namespace shop kubernetes.io/metadata.name=shop"
    ]

    label(cluster, "shop", **{NAMESPACE_NAME: "shop"})
    assert (await eventually(lambda: decided("NamespaceLabel")))["decision"]["injected"]
    label(cluster, "shop", **{NAMESPACE_NAME: None, INJECT: None})
    elsewhere = await plane.get("/apis/inspect.headgate.dev/v1beta1/namespaces/kube-system/pods/explained/sidecar")
    assert elsewhere["message"].startswith("the namespace kube-system does not belong to the mesh")


async def test_an_installation_for_fewer_namespaces_deletes_the_roles_elsewhere(cluster: KubeApiServer) -> None:
    fewer = structs.replace(VALUES, options={**VALUES.options, "namespaces": "shop"})
    async with cluster.client() as client:
        pruned = [obj["metadata"] async for obj, _ in Installer(client).prune(manifests(fewer))]
        with pytest.raises(HeadgateError, match="the namespace gone does not exist; create it, or remove it"):
            await Installer(client).check_options(MeshOptions(namespaces=("shop", "gone")))
        async for _ in Installer(client).apply(
            obj for obj in on_this_machine(cluster, LIMITED) if "Role" in obj["kind"]
        ):
            pass
    assert {(item["namespace"], item["name"]) for item in pruned} == {("pay", "headgate-namespace")}
