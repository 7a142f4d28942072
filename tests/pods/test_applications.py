"""The applications of tests/e2e on a real cluster, with the checks of one machine: the same requests get the same answers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.e2e.applications.checks import CHECKS, IMAGE, objects, wait_rolled_out
from tests.pods.conftest import BIN, Cluster, build_image, mesh_namespace


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


@pytest.fixture
def volume(shared_cluster: Cluster) -> Iterator[None]:
    """A volume for the claim of the database: the cluster of the tests creates none by itself."""
    spec = {
        "capacity": {"storage": "10Mi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/var/tmp/application-voting", "type": "DirectoryOrCreate"},
        "claimRef": {"namespace": "application-voting", "name": "data-db-0"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    shared_cluster.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "application-voting"}, "spec": spec}
    )
    yield
    shared_cluster.kubectl("delete", "pv", "application-voting", "--wait=false")


@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("application", CHECKS)
def test_an_application_with_fixed_ports_runs_unchanged(application: str, shared_cluster: Cluster) -> None:
    build_image(IMAGE, "--venv", BIN.parent, "--dist", "headgate")  # its Python has grpcio
    name = f"application-{application.replace('_', '-')}"
    shared_cluster.apply(mesh_namespace(name))
    host = Namespace(shared_cluster, name)
    written = [as_accepted(obj, shared_cluster) for obj in objects(application)]
    host.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": written}))
    wait_rolled_out(host)
    shared_cluster.wait_in_sync(name)
    CHECKS[application](host)
