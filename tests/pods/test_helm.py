"""The Helm chart on a real cluster: an installation, an upgrade that pods don't notice, and an uninstallation."""

from tests.helm import CHART, helm_program
from tests.pods.conftest import IMAGE, SYSTEM, Cluster, deployment, namespace, service
from tests.pods.test_install import KINDS

REPOSITORY, TAG = IMAGE.rsplit(":", 1)
OPTIONS = ("--namespace", SYSTEM, "--set", f"image.repository={REPOSITORY},image.tag={TAG}")
# API servers of Kubernetes 1.20 panic when an APIService is applied.
WAIT = ("--server-side=false", "--wait", "--timeout", "100s")


def test_helm_installs_upgrades_and_uninstalls(cluster: Cluster) -> None:
    """The upgrade changes a value and leaves the pods with sidecars; the uninstallation leaves nothing but definitions."""
    helm = helm_program()
    cluster.run(helm, "install", "headgate", CHART, "--create-namespace", *OPTIONS, *WAIT)
    cluster.apply(
        namespace("shop"),
        service("shop", "website", app="website"),
        deployment("shop", "website"),
        deployment("shop", "client", command=["sleep", "infinity"]),
    )
    cluster.wait_rolled_out("shop", "website", "client")
    before = _sidecars(cluster)
    assert len(before) == 2

    cluster.run(helm, "upgrade", "headgate", CHART, *OPTIONS, "--set", "mtls=strict,replicas=1", *WAIT)
    cluster.wait_rolled_out(SYSTEM, "headgate")
    assert cluster.get("-n", SYSTEM, "deployment/headgate")["spec"]["replicas"] == 1
    assert _sidecars(cluster) == before

    cluster.kubectl("delete", "namespace", "shop")
    cluster.run(helm, "uninstall", "headgate", "--namespace", SYSTEM, "--wait", "--timeout", "100s")
    assert "trafficsplits.split.smi-spec.io" in cluster.kubectl("get", "customresourcedefinitions", "-o", "name")
    cluster.headgate("uninstall")
    cluster.kubectl("wait", "--for=delete", f"namespace/{SYSTEM}", "--timeout=100s")
    names = cluster.kubectl("get", KINDS, "-o", "name")
    assert "headgate" not in names
    assert "smi-spec.io" not in names


def _sidecars(cluster: Cluster) -> set[tuple[str, str, int]]:
    """Return the uid, the image and the restarts of each ready sidecar."""
    return {
        (pod["metadata"]["uid"], container["image"], container["restartCount"])
        for pod in cluster.get("-n", "shop", "pods")["items"]
        for container in pod["status"]["containerStatuses"]
        if container["name"] == "headgate-sidecar" and container["ready"]
    }
