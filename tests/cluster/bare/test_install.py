"""The installation on a real API server: it accepts every object, a repetition changes nothing, and all can be deleted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.api_server import MERGE, KubeApiServer, controller
from tests.cluster.control_planes import DEADLINE_S, eventually
from tests.make.objects import split
from tests.make.smi_definitions import ORIGINS
from typer.testing import CliRunner

from headgate.admission.injection import NAMESPACE_NAME
from headgate.cli.app import app
from headgate.errors import HeadgateError
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.options import MeshOptions

ROOTS = {"name": "headgate-roots", "namespace": "default"}
REVISION = (
    "/apis/apps/v1/namespaces/headgate-system/deployments/headgate-rev-canary",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/headgate-rev-canary",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/headgate-rev-canary",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/headgate-rev-canary",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/headgate-rev-canary",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/headgate-rev-canary",
)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPLITS = "trafficsplits.split.smi-spec.io"
SPLITS_PATH = "/apis/split.smi-spec.io/v1alpha4/namespaces/shop/trafficsplits"
LINKERD = ORIGINS[0]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CUSTOM = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.custom.metrics.k8s.io"


@pytest_asyncio.fixture
async def installer(cluster: KubeApiServer) -> AsyncIterator[Installer]:
    async with cluster.client() as client:
        yield Installer(client)


async def test_all_objects_are_accepted_then_unchanged_when_applied_again_then_deleted(
    cluster: KubeApiServer, installer: Installer
) -> None:
    values = Values(image="headgate:1", budget_version=await installer.budget_version())
    first = [outcome async for _, outcome in installer.apply(manifests(values))]
    assert set(first) == {"created"}
    assert await installer.has_any(manifests(values))
    again = {
        f"{obj['kind']}/{obj['metadata']['name']}": outcome async for obj, outcome in installer.apply(manifests(values))
    }
    assert {name for name, outcome in again.items() if outcome != "unchanged"} == set()
    cluster.make("/api/v1/namespaces/default/configmaps", {"metadata": ROOTS, "data": {"roots.pem": ""}})
    await installer.delete_created()
    assert cluster.call("GET", "/api/v1/namespaces/default/configmaps/headgate-roots")[0] == 404
    gone = [outcome async for _, outcome in installer.delete(manifests(values))]
    assert set(gone) == {"deleted"}
    await eventually(
        lambda: not cluster.call("GET", f"{DEFINITIONS}?labelSelector=app.kubernetes.io/name=headgate")[1]["items"]
    )
    left = [obj["kind"] async for obj, _ in installer.delete(manifests(values))]
    assert left == ["Namespace"]  # the other objects are gone
    (line,) = await installer.terminating(manifests(values))
    assert line.startswith("namespace/headgate-system: ")
    assert not await installer.has_any(manifests(values))


async def test_an_uninstallation_ends_when_all_is_deleted(cluster: KubeApiServer) -> None:
    """So another installation can follow at once. The installation prints the namespace of each namespaced object."""
    cluster.namespace("shop")

    async def headgate(command: str, *options: str) -> list[str]:
        words = [command, "--kubeconfig", str(cluster.kubeconfig()), *options]
        return (await asyncio.to_thread(CliRunner().invoke, app, words)).output.splitlines()

    lines = await headgate("install", "--namespaces", "shop", "--timeout", "1s")
    assert {
        "role/headgate-namespace created (namespace shop)",
        "rolebinding/headgate-namespace created (namespace shop)",
        "service/headgate-webhooks created (namespace headgate-system)",
        "clusterrole/headgate created",
        "waiting until the control plane is ready",
    } <= set(lines)
    await assert_a_revision_is_added_and_removed(cluster, headgate)
    for name in ("a", "b"):
        cluster.make(SPLITS_PATH, split(name, {name: 1}, namespace="shop"))
    with controller(cluster, "namespace"):
        lines = await headgate("uninstall")
    assert lines[0] == (
        "the uninstallation deletes 2 TrafficSplits; this command prints them:"
        f" kubectl get {SPLITS} --all-namespaces -o yaml"
    )
    assert lines[-1] == "headgate is removed"
    assert cluster.call("GET", "/api/v1/namespaces/headgate-system")[0] == 404
    for path in REVISION:
        assert cluster.call("GET", path)[0] == 404
    assert (await headgate("uninstall"))[-1] == "headgate is not installed"


async def assert_a_revision_is_added_and_removed(
    cluster: KubeApiServer, headgate: Callable[..., Awaitable[list[str]]]
) -> None:
    """Install a revision, which has the options of the installation and stays when these change; leave it for the uninstallation."""
    refused = await headgate("install", "--revision", "canary", "--mtls", "strict")
    assert "a revision has the options of the installation" in " ".join(refused)
    added = ("install", "--revision", "canary", "--image", "headgate:2", "--timeout", "1s")
    for _ in range(2):
        lines = await headgate(*added)
        assert "mutatingwebhookconfiguration/headgate-rev-canary created" in lines
        deployment = cluster.call("GET", REVISION[0])[1]["spec"]["template"]["spec"]["containers"][0]
        assert deployment["image"] == "headgate:2"
        assert {"--namespaces=shop", "--revision", "canary"} <= set(deployment["args"])
        lines = await headgate("uninstall", "--revision", "canary")
        assert lines[0] == "deployment/headgate-rev-canary deleted (namespace headgate-system)"  # its webhooks later
        assert "revision canary is removed" in lines
        for path in REVISION:
            assert cluster.call("GET", path)[0] == 404
    await headgate(*added)
    await headgate("install", "--timeout", "1s")
    for path in REVISION:
        assert cluster.call("GET", path)[0] == 200


async def test_a_definition_is_deleted_although_no_replica_converts_its_objects(
    cluster: KubeApiServer, installer: Installer
) -> None:
    """An uninstallation of an earlier time left a definition that the API server can't delete."""
    cluster.namespace("shop")
    cluster.make(DEFINITIONS, LINKERD.definitions[0])
    path = "/apis/split.smi-spec.io/v1alpha1/namespaces/shop/trafficsplits"
    await eventually(lambda: cluster.call("GET", path)[0] == 200)
    cluster.make(path, LINKERD.objects[0])
    objects = [obj for obj in manifests(Values(image="headgate:1")) if obj["metadata"]["name"] == SPLITS]
    status, answer = cluster.call("PATCH", f"{DEFINITIONS}/{SPLITS}", {"spec": objects[0]["spec"]}, content_type=MERGE)
    assert status == 200, answer
    await eventually(lambda: cluster.call("GET", path.replace("v1alpha1", "v1alpha4"))[0] == 500)
    assert cluster.call("DELETE", f"{DEFINITIONS}/{SPLITS}")[0] == 200
    await eventually(lambda: "conversion webhook" in str(cluster.call("GET", f"{DEFINITIONS}/{SPLITS}")[1]["status"]))
    assert [outcome async for _, outcome in installer.unblock_deletion(objects)] == [
        "configured: without the conversion, whose server is gone"
    ]
    async with asyncio.timeout(DEADLINE_S):
        await installer.wait_gone(objects)
    assert [outcome async for _, outcome in installer.apply(objects)] == ["created"]


async def test_definitions_of_other_meshes_are_not_touched_without_an_installation(
    cluster: KubeApiServer, installer: Installer
) -> None:
    cluster.make(DEFINITIONS, LINKERD.definitions[0])
    objects = [obj for obj in manifests(Values(image="headgate:1")) if obj["metadata"]["name"] == SPLITS]
    before = cluster.call("GET", f"{DEFINITIONS}/{SPLITS}")[1]["spec"]
    assert not await installer.has_any(objects)
    assert [outcome async for _, outcome in installer.delete(objects)] == ["kept: headgate did not install it"]
    assert cluster.call("GET", f"{DEFINITIONS}/{SPLITS}")[1]["spec"] == before


async def test_a_definition_whose_rules_the_api_server_rejects_is_installed_without_them(
    cluster: KubeApiServer, installer: Installer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kubernetes 1.20 rejects them; a newer server could, if a rule costs more than it allows."""
    monkeypatch.setattr("headgate.kubernetes.install.installer.RULES_OF_DEFINITIONS", (1, 20))
    (sidecars,) = (
        obj for obj in manifests(Values(image="headgate:1")) if obj["metadata"]["name"] == "sidecars.headgate.dev"
    )
    assert [outcome async for _, outcome in installer.apply([sidecars])] == ["created"]
    assert "sidecars.headgate.dev is installed without CEL rules: " in caplog.text
    assert [outcome async for _, outcome in installer.delete([sidecars])] == ["deleted"]
    await eventually(lambda: cluster.call("GET", f"{DEFINITIONS}/sidecars.headgate.dev")[0] == 404)


async def test_pods_with_a_sidecar_are_listed(cluster: KubeApiServer, installer: Installer) -> None:
    """Not those that have ended, such as pods of Jobs, and those that are being deleted."""
    cluster.namespace("sidecars")
    sidecar = {"headgate.dev/sidecar-mode": "transparent"}
    for name, annotations in (("plain", {}), ("web-1", sidecar), ("web-2", sidecar), ("web-3", sidecar)):
        spec = {"containers": [{"name": "web", "image": "web"}], "serviceAccountName": "web", "nodeName": "node-1"}
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        cluster.make("/api/v1/namespaces/sidecars/pods", body)
    assert await installer.pods_with_sidecar() == ["sidecars/web-1", "sidecars/web-2", "sidecars/web-3"]
    pods = "/api/v1/namespaces/sidecars/pods"
    cluster.call("PATCH", f"{pods}/web-2/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE)
    cluster.call("DELETE", f"{pods}/web-3")
    assert cluster.call("GET", f"{pods}/web-3")[1]["metadata"]["deletionTimestamp"]
    assert await installer.pods_with_sidecar() == ["sidecars/web-1"]


async def test_custom_metrics_of_another_server_are_not_taken_over(
    cluster: KubeApiServer, installer: Installer
) -> None:
    values = Values(
        image="headgate:1", budget_version=await installer.budget_version(), options={"custom_metrics": "true"}
    )
    own = [obj for obj in manifests(values) if obj["metadata"]["name"] == "v1beta2.custom.metrics.k8s.io"]
    await installer.check_options(MeshOptions(custom_metrics=True))
    assert [outcome async for _, outcome in installer.apply(own)] == ["created"]
    await installer.check_options(MeshOptions(custom_metrics=True))
    assert [outcome async for _, outcome in installer.delete(own)] == ["deleted"]

    other = {
        **own[0],
        "spec": {**own[0]["spec"], "service": {"namespace": "monitoring", "name": "adapter", "port": 443}},
    }
    assert [outcome async for _, outcome in installer.apply([other])] == ["created"]
    with pytest.raises(HeadgateError, match=r"v1beta2\.custom\.metrics\.k8s\.io names the Service monitoring/adapter"):
        await installer.check_options(MeshOptions(custom_metrics=True))
    (kept,) = [outcome async for _, outcome in installer.delete(own)]
    assert kept.startswith("kept")
    assert cluster.call("GET", CUSTOM)[0] == 200


async def test_an_installation_without_an_option_deletes_the_objects_of_the_option(
    cluster: KubeApiServer, installer: Installer
) -> None:
    """headgate keeps no permission and no APIService of custom metrics; those of other servers stay."""
    objects: dict[bool, list[Any]] = {}
    for custom_metrics in (True, False):
        found = manifests(Values(image="headgate:1", options={"custom_metrics": "true" if custom_metrics else ""}))
        objects[custom_metrics] = [
            obj for obj in found if obj["kind"] in {"APIService", "ClusterRole", "ClusterRoleBinding"}
        ]
        async for _ in installer.apply(objects[custom_metrics]):
            pass
    cluster.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "of-a-user"}})
    pruned = {f"{obj['kind']}/{obj['metadata']['name']}" async for obj, _ in installer.prune(objects[False])}
    roles = {f"{kind}/headgate-custom-metrics" for kind in ("ClusterRole", "ClusterRoleBinding")}
    assert pruned == {*roles, "APIService/v1beta2.custom.metrics.k8s.io"}
    assert [obj async for obj, _ in installer.prune(objects[False])] == []
    assert cluster.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/of-a-user")[0] == 200


async def test_kubernetes_own_roles_get_the_rights_of_users_in_their_namespace(
    cluster: KubeApiServer, installer: Installer
) -> None:
    """Kubernetes' own controller aggregates the KubeApiServerRoles, and the API server reviews the rights of users."""
    roles = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] == "ClusterRole"]
    async for _ in installer.apply(roles):
        pass
    cluster.namespace("team")
    every, writers = {"view", "edit", "admin"}, {"edit", "admin"}
    for role in every:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}
        binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
        cluster.make("/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings", binding)

    def allowed(verb: str, resource: str, namespace: str = "team") -> set[str]:
        """Return the users with a right; `resource` is written as for `kubectl auth can-i`."""
        plural, _, group = resource.partition(".")
        group, _, subresource = group.partition("/")
        right = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
        specs = {user: {"user": user, "resourceAttributes": right} for user in every}
        return {user for user, spec in specs.items() if cluster.make(REVIEWS, {"spec": spec})["status"]["allowed"]}

    with controller(cluster, "clusterrole-aggregation"):
        await eventually(lambda: allowed("list", "trafficsplits.split.smi-spec.io") == every)
        await eventually(lambda: allowed("create", "trafficsplits.split.smi-spec.io") == writers)
    assert allowed("watch", "canaries.headgate.dev") == every
    assert allowed("deletecollection", "traffictargets.access.smi-spec.io") == writers
    assert allowed("get", "pods.traffic.metrics.k8s.io/edges") == every
    for verb, resource in (
        ("update", "canaries.headgate.dev/status"),
        ("list", "nodes.traffic.metrics.k8s.io"),
        ("list", "proxies.inspect.headgate.dev"),
    ):
        assert allowed(verb, resource) == set(), (verb, resource)
    assert allowed("list", "trafficsplits.split.smi-spec.io", "default") == set()


async def test_a_kind_that_the_cluster_does_not_serve_is_an_error(installer: Installer) -> None:
    unknown = {"apiVersion": "v1", "kind": "Wheel", "metadata": {"name": "a"}}
    with pytest.raises(Exception, match="the cluster does not serve Wheel in v1"):
        [outcome async for _, outcome in installer.apply([unknown])]


async def test_the_namespaces_of_a_limited_mesh_are_checked(cluster: KubeApiServer, installer: Installer) -> None:
    """Kubernetes 1.20 does not write the label that the webhooks select; a namespace in deletion accepts no objects."""
    cluster.make("/api/v1/namespaces", {"metadata": {"name": "labeled", "labels": {NAMESPACE_NAME: "labeled"}}})
    cluster.make("/api/v1/namespaces", {"metadata": {"name": "other", "labels": {NAMESPACE_NAME: "labeled"}}})
    assert await installer.check_options(MeshOptions(namespaces=("labeled", "other"))) == ["other", "kube-system"]
    labels = {"metadata": {"labels": {NAMESPACE_NAME: "kube-system"}}}
    cluster.call("PATCH", "/api/v1/namespaces/kube-system", labels, content_type=MERGE)
    assert await installer.check_options(MeshOptions()) == []
    with pytest.raises(HeadgateError, match=r"the namespace missing does not exist; create it"):
        await installer.check_options(MeshOptions(namespaces=("missing",)))
