"""The applications of tests/e2e on a real cluster, with the checks of one machine: the same requests get the same answers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.e2e.applications.checks import CHECKS, IMAGE, objects, wait_rolled_out
from tests.pods.conftest import (
    Cluster,
    mesh_namespace,
)
from tests.pods.kit import BIN, build_image


class Namespace:
    """A namespace of a cluster; it implements `checks.ApplicationHost`."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.namespace = name
        self._cluster = cluster

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl in the namespace."""
        return self._cluster.kubectl("-n", self.namespace, *words, stdin=stdin)


def as_accepted(obj: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Return an object in the form that an older cluster accepts: batch/v1 has CronJobs since 1.21, probes have gRPC since 1.24."""
    if obj["kind"] == "CronJob":
        served = cluster.kubectl("api-versions").split()
        return {**obj, "apiVersion": "batch/v1beta1" if "batch/v1beta1" in served else "batch/v1"}
    if obj["kind"] != "Deployment" or _version(cluster) >= (1, 24):
        return dict(obj)
    changed: dict[str, Any] = json.loads(json.dumps(obj))
    for container in changed["spec"]["template"]["spec"]["containers"]:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            if check := container.get(name, {}).pop("grpc", None):
                container[name]["tcpSocket"] = check
    return changed


def _version(cluster: Cluster) -> tuple[int, int]:
    version = json.loads(cluster.kubectl("get", "--raw", "/version"))
    return int(version["major"]), int(version["minor"].rstrip("+"))


@pytest.fixture(scope="module")
def host(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster with the applications' image, and a volume for their claim: the cluster of the tests creates none by itself."""
    build_image(IMAGE, "--venv", BIN.parent, "--dist", "headgate")  # its Python has grpcio
    spec = {
        "capacity": {"storage": "10Mi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(tmp_path_factory.mktemp("volume")), "type": "Directory"},
        "claimRef": {"namespace": "application-voting", "name": "data-db-0"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "application-voting"}, "spec": spec}
    shared_cluster.apply(volume)
    yield shared_cluster
    shared_cluster.kubectl("delete", "pv", "application-voting", "--wait=false")


@pytest.mark.parametrize("application", CHECKS)
def test_an_application_with_fixed_ports_runs_unchanged(application: str, host: Cluster) -> None:
    name = f"application-{application.replace('_', '-')}"
    host.apply(mesh_namespace(name))
    namespace = Namespace(host, name)
    written = [as_accepted(obj, host) for obj in objects(application)]
    namespace.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": written}))
    wait_rolled_out(namespace)
    host.wait_in_sync(name)
    CHECKS[application](namespace)
    host.delete_namespaces(name)  # its pods would need processor time during the next test
