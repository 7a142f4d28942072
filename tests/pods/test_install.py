"""Installing headgate on a real cluster, installing it again, and removing it."""

import json

import pytest
from tests.make.objects import Object
from tests.make.smi_definitions import ORIGINS
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    is_deleted,
    mesh_namespace,
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


def test_an_installation_is_repeated_repaired_and_removed(emptied: Cluster) -> None:
    """An upgrade to the same version changes nothing and keeps the options. An uninstallation leaves nothing, once no pod has a sidecar.

    In between, the namespace of the installation is deleted. The APIServices name a Service of this namespace, so Kubernetes can't
    delete it, nor any other namespace.
    """
    installed = emptied
    installed.headgate("install", *OPTIONS, "--access", "deny")
    printed = installed.headgate("upgrade", "--image", IMAGE)
    assert "created" not in printed
    assert "configured" not in printed
    assert "deployment/headgate unchanged" in printed
    assert printed.endswith(f"headgate 0.1.0 -> 0.1.0, image {IMAGE} -> {IMAGE}: 0 of 0 proxies in sync\n")
    installed.apply(mesh_namespace(PLACE), app_deployment(PLACE, "client", command=["sleep", "infinity"]))
    installed.wait_rolled_out(PLACE, "client")
    assert_users_have_rights(installed, PLACE)
    with pytest.raises(AssertionError, match=rf"1 pod still has a sidecar: {PLACE}/client-"):
        installed.headgate("uninstall")
    installed.kubectl("-n", PLACE, "delete", "deployment/client")
    until(lambda: all(map(is_deleted, installed.get("pods", PLACE)["items"])), "the deletion of the pod")
    assert_deleted_namespace_is_repaired(installed)
    installed.headgate("uninstall")
    assert leftovers(installed) == []


def assert_deleted_namespace_is_repaired(cluster: Cluster) -> None:
    """Delete the namespace of the installation, and install again."""
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")

    def is_blocked() -> bool:
        return "Discovery failed" in json.dumps(cluster.get(f"namespace/{SYSTEM}")["status"].get("conditions"))

    until(is_blocked, "the deletion is blocked")
    printed = cluster.headgate("install", *OPTIONS)
    assert "apiservice/v1beta1.inspect.headgate.dev deleted: its server is gone" in printed
    assert f"namespace/{SYSTEM} created" in printed


def test_splits_of_another_mesh_are_adopted_and_given_back(empty_cluster: Cluster) -> None:
    """The control plane reads them as soon as it runs. After the uninstallation they and their definition are as before."""
    cluster, linkerd = empty_cluster, ORIGINS[0]
    (definition,), (split,) = linkerd.definitions, linkerd.objects
    name = definition["metadata"]["name"]

    def spec(what: str) -> Object:
        stored: Object = json.loads(cluster.kubectl("-n", "shop", "get", what, "web", "-o", "json"))
        return stored["spec"]  # type: ignore[no-any-return]

    def content() -> Object:
        stored: Object = json.loads(cluster.kubectl("get", "customresourcedefinition", name, "-o", "json"))
        return stored["spec"]  # type: ignore[no-any-return]

    cluster.apply(mesh_namespace("shop", injected=False), definition)
    until(lambda: cluster.kubectl("apply", "-f", "-", stdin=json.dumps(split)), "the definition is served")
    before = content()
    try:
        printed = cluster.headgate("install", *OPTIONS)
        assert f"customresourcedefinition/{name} migrated: 1 object is stored in v1alpha4" in printed
        assert spec("trafficsplits.v1alpha1.split.smi-spec.io") == split["spec"]
        assert [row["weight"] for row in spec("trafficsplits.v1alpha4.split.smi-spec.io")["backends"]] == [9, 1]
        status = ("-n", "shop", "get", "trafficsplits.split.smi-spec.io", "web", "-o", "jsonpath={.status.conditions}")
        until(lambda: "Accepted" in cluster.kubectl(*status), "the status of the split")
        cluster.headgate("uninstall")
        assert content() == before
        assert spec("trafficsplits.split.smi-spec.io") == split["spec"]
    finally:
        cluster.kubectl("delete", "customresourcedefinition", name, "--ignore-not-found")
        cluster.kubectl("delete", "namespace", "shop")
