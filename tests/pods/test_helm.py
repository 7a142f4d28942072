"""The Helm chart on a real cluster: an installation, an upgrade that pods don't notice, and an uninstallation."""

from tests.helm import CHART, helm_program
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    app_deployment,
    graceful,
    http_service,
    mesh_namespace,
    removing_ended_pods,
    until,
)
from tests.pods.kit import IMAGE, SECOND_IMAGE
from tests.pods.load import failures, load
from tests.pods.test_install import leftovers

PLACE = "released"
REPOSITORY, TAG = IMAGE.rsplit(":", 1)
SECOND_TAG = SECOND_IMAGE.removeprefix(f"{REPOSITORY}:")
OPTIONS = ("--namespace", SYSTEM, "--set", f"image.repository={REPOSITORY},image.tag={TAG}")
# API servers of Kubernetes 1.20 panic when an APIService is applied.
WAIT = ("--server-side=false", "--wait", "--timeout", "240s")


def test_helm_installs_upgrades_and_uninstalls(empty_cluster: Cluster) -> None:
    """An upgrade leaves the pods with sidecars, which get the new image when they are replaced, without a lost request.

    The uninstallation leaves nothing but definitions.
    """
    cluster, helm = empty_cluster, helm_program()
    cluster.run(helm, "install", "headgate", CHART, "--create-namespace", *OPTIONS, *WAIT)
    cluster.apply(
        mesh_namespace(PLACE),
        http_service(PLACE, "website", app="website"),
        graceful(app_deployment(PLACE, "website"), seconds=20),  # a client may learn of its end late
        app_deployment(PLACE, "client", command=["sleep", "infinity"]),
    )
    cluster.wait_rolled_out(PLACE, "website", "client")
    cluster.wait_in_sync(PLACE)
    before = _sidecars(cluster)
    assert len(before) == 2

    values = f"mtls=strict,replicas=1,image.tag={SECOND_TAG}"
    with load(cluster, PLACE, "website") as counts:
        cluster.run(helm, "upgrade", "headgate", CHART, *OPTIONS, "--set", values, *WAIT)
        cluster.wait_rolled_out(SYSTEM, "headgate")
        assert cluster.get("deployment/headgate", SYSTEM)["spec"]["replicas"] == 1
        assert _sidecars(cluster) == before
        cluster.wait_in_sync(PLACE)  # with the next active replica, so that clients learn of the new pods
        cluster.wait_ended(SYSTEM)  # until then, a replica from before may still add sidecars
        cluster.kubectl("-n", PLACE, "rollout", "restart", "deployment/website")
        cluster.wait_rolled_out(PLACE, "website")
        images = {image for _, image, _ in _sidecars(cluster)}
    assert counts["website"] > 0
    assert not failures(counts, "website")
    assert images == {IMAGE, SECOND_IMAGE}  # the client still has the old image

    cluster.delete_namespaces(PLACE)
    until(lambda: PLACE not in cluster.namespaces(), "the end of the namespace")
    with removing_ended_pods(cluster, SYSTEM):
        cluster.run(helm, "uninstall", "headgate", "--namespace", SYSTEM, "--wait", "--timeout", "240s")
        assert "trafficsplits.split.smi-spec.io" in cluster.kubectl("get", "customresourcedefinitions", "-o", "name")
        cluster.headgate("uninstall")
        until(lambda: SYSTEM not in cluster.namespaces(), "the end of the installation")
    assert leftovers(cluster) == []


def _sidecars(cluster: Cluster) -> set[tuple[str, str, int]]:
    """Return the uid, the image and the restarts of each sidecar whose pod is not being deleted."""
    name = "headgate-sidecar"
    return {
        (pod["metadata"]["uid"], container["image"], status["restartCount"])
        for pod in cluster.get("pods", PLACE)["items"]
        for container in pod["spec"]["containers"]
        for status in pod["status"]["containerStatuses"]
        if container["name"] == status["name"] == name and not pod["metadata"].get("deletionTimestamp")
    }
