"""Installing headgate on a real cluster that has splits of another mesh, installing it again, and removing it."""

import json
from collections.abc import Iterator

import pytest
from tests.make.objects import Object
from tests.make.smi_definitions import ORIGINS
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    is_deleted,
    mesh_namespace,
    removing_ended_pods,
    split_in,
    until,
)
from tests.pods.kit import IMAGE

PLACE = "installed"
OPTIONS = ("--image", IMAGE, "--replicas", 1)


def leftovers(cluster: Cluster) -> list[str]:
    """Return the names of all objects of headgate and the SMI in a cluster, except Events."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    listed = ",".join(kind for kind in kinds if not kind.startswith("events"))
    names = cluster.kubectl("get", listed, "--all-namespaces", "-o", "name").splitlines()
    return [name for name in names if "headgate" in name or "smi-spec.io" in name]


def assert_users_have_rights(cluster: Cluster, place: str) -> None:
    """Assert what users with the Kubernetes roles `view` and `edit` in a namespace may do there.

    Kubernetes' controller adds the rights to its roles a moment after the installation.
    """
    for user in ("view", "edit"):
        cluster.kubectl("-n", place, "create", "rolebinding", user, f"--clusterrole={user}", f"--user={user}")
    viewer, editor = (("--as", user, "-n", place) for user in ("view", "edit"))
    splits, deployments = "trafficsplits.split.smi-spec.io", "/apis/traffic.metrics.k8s.io/v1beta1/{}deployments"
    made = json.dumps(split_in(place, "canary", "website", v1=1))
    until(lambda: cluster.kubectl(*editor, "apply", "-f", "-", stdin=made), "rights of the role `edit`")
    until(lambda: "canary" in cluster.kubectl(*viewer, "get", splits), "rights of the role `view`")
    until(lambda: "client" in cluster.kubectl(*viewer, "get", "--raw", deployments.format(f"namespaces/{place}/")))
    for refused in (
        (*viewer, "delete", splits, "canary"),
        ("--as", "view", "get", splits, "--all-namespaces"),
        (*viewer, "get", "--raw", deployments.format("")),
        (*viewer, "get", "--raw", f"/apis/inspect.headgate.dev/v1beta1/namespaces/{place}/proxies"),
    ):
        with pytest.raises(AssertionError, match=r"User .*view.* cannot (delete|list)"):
            cluster.kubectl(*refused)
    cluster.kubectl(*editor, "delete", splits, "canary")


class AnotherMesh:
    """A split of another mesh with its definition, in the namespace `shop`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        (definition,), (self.split,) = ORIGINS[0].definitions, ORIGINS[0].objects
        self.name = definition["metadata"]["name"]
        cluster.apply(mesh_namespace("shop", injected=False), definition)
        until(lambda: cluster.kubectl("apply", "-f", "-", stdin=json.dumps(self.split)), "the definition is served")
        self.before = self.definition()

    def definition(self) -> Object:
        """Return the content of the definition."""
        return self._spec("customresourcedefinition", self.name)

    def spec(self, version: str = "") -> Object:
        """Return the content of the split, in a version that the API server serves."""
        return self._spec("-n", "shop", ".".join(filter(None, ("trafficsplits", version, "split.smi-spec.io"))), "web")

    def _spec(self, *what: str) -> Object:
        stored: Object = json.loads(self.cluster.kubectl("get", *what, "-o", "json"))
        return stored["spec"]  # type: ignore[no-any-return]

    def assert_adopted(self, printed: str) -> None:
        """Assert that the control plane reads the split, and that it is stored in headgate's version."""
        assert f"customresourcedefinition/{self.name} migrated: 1 object is stored in v1alpha4" in printed
        assert self.spec("v1alpha1") == self.split["spec"]
        assert [row["weight"] for row in self.spec("v1alpha4")["backends"]] == [9, 1]
        status = ("-n", "shop", "get", "trafficsplits.split.smi-spec.io", "web", "-o", "jsonpath={.status.conditions}")
        until(lambda: "Accepted" in self.cluster.kubectl(*status), "the status of the split")


@pytest.fixture
def another_mesh(empty_cluster: Cluster) -> Iterator[AnotherMesh]:
    mesh = AnotherMesh(empty_cluster)
    yield mesh
    empty_cluster.kubectl("delete", "customresourcedefinition", mesh.name, "--ignore-not-found")


def test_an_installation_is_repeated_repaired_and_removed(another_mesh: AnotherMesh) -> None:
    """An upgrade to the same version changes nothing and keeps the options. An uninstallation leaves nothing, once no pod has a sidecar.

    Splits of another mesh have effect as soon as the control plane runs. Afterwards they and their definition are as before.
    In between, the namespace of the installation is deleted. The APIServices name a Service of this namespace, so Kubernetes can't
    delete it, nor any other namespace.
    """
    cluster = another_mesh.cluster
    foreign = leftovers(cluster)
    another_mesh.assert_adopted(cluster.headgate("install", *OPTIONS, "--access", "deny"))
    printed = cluster.headgate("upgrade", "--image", IMAGE)
    assert "created" not in printed
    assert "configured" not in printed
    assert "deployment/headgate unchanged" in printed
    assert printed.endswith(f"headgate 0.1.0 -> 0.1.0, image {IMAGE} -> {IMAGE}: 0 of 0 proxies in sync\n")
    cluster.apply(mesh_namespace(PLACE), app_deployment(PLACE, "client", command=["sleep", "infinity"]))
    cluster.wait_rolled_out(PLACE, "client")
    assert_users_have_rights(cluster, PLACE)
    with pytest.raises(AssertionError, match=rf"1 pod still has a sidecar: {PLACE}/client-"):
        cluster.headgate("uninstall")
    cluster.kubectl("-n", PLACE, "delete", "deployment/client")
    until(lambda: all(map(is_deleted, cluster.get("pods", PLACE)["items"])), "the deletion of the pod")
    with removing_ended_pods(cluster, SYSTEM):
        assert_deleted_namespace_is_repaired(cluster)
        cluster.headgate("uninstall")
    assert another_mesh.definition() == another_mesh.before
    assert another_mesh.spec() == another_mesh.split["spec"]
    assert leftovers(cluster) == foreign


def assert_deleted_namespace_is_repaired(cluster: Cluster) -> None:
    """Delete the namespace of the installation, and install again."""
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")

    def is_blocked() -> bool:
        return "Discovery failed" in json.dumps(cluster.get(f"namespace/{SYSTEM}")["status"].get("conditions"))

    until(is_blocked, "the deletion is blocked")
    printed = cluster.headgate("install", *OPTIONS)
    assert "apiservice/v1beta1.inspect.headgate.dev deleted: its server is gone" in printed
    assert f"namespace/{SYSTEM} created" in printed
