"""kubectl against a running headgate: nodes, server-side dry runs, misspelled kinds."""

import json
from collections.abc import Iterator

import pytest
from tests.e2e import manifests
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.waiting import until

LABELS = {"app": "web"}
MISSPELLED = """
apiVersion: split.smi-spec.io/v1alpha4
kind: TraficSplit
metadata: {name: web}
spec: {service: web, backends: [{service: web-v1, weight: 1}]}
"""


@pytest.fixture(scope="module")
def own_mesh() -> Iterator[RunningMesh]:
    """Run a headgate whose node these tests may drain."""
    with mesh_in_a_new_directory() as mesh:
        yield mesh


@pytest.fixture
def deployed(own_mesh: RunningMesh) -> Iterator[RunningMesh]:
    count = own_mesh.root / "count"
    own_mesh.apply(manifests.counting_deployment("web", count, labels=LABELS, ports={"http": 8080}, replicas=2))
    own_mesh.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    yield own_mesh
    own_mesh.kubectl("uncordon", "local")


def phases(mesh: RunningMesh) -> list[str]:
    pods = json.loads(mesh.kubectl("get", "pods", "-o", "json"))["items"]
    return sorted(pod["status"].get("phase", "") for pod in pods)


def test_kubectl_shows_the_machine_as_a_node(deployed: RunningMesh) -> None:
    header, row = deployed.kubectl("get", "no").splitlines()
    assert header.split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split()[:3] == ["local", "Ready", "control-plane"]
    assert row.split()[4].startswith("v1.30.0+headgate-")
    assert "127.0.0.1" in deployed.kubectl("get", "nodes", "-o", "wide")
    described = deployed.kubectl("describe", "node", "local")
    for part in ("Unschedulable:      false", "Kubelet Version:", "HeadgateReady", "Non-terminated Pods:", "web-"):
        assert part in described


def test_a_drained_node_runs_no_pod_until_it_is_uncordoned(deployed: RunningMesh) -> None:
    tried = deployed.kubectl("drain", "local", "--dry-run=server", "--delete-emptydir-data", "--force")
    assert "server dry run" in tried
    assert phases(deployed) == ["Running", "Running"]
    drained = deployed.kubectl("drain", "local", "--delete-emptydir-data", "--force", "--timeout=60s")
    assert "node/local drained" in drained
    assert drained.count("evicted") == 2
    until(lambda: phases(deployed) == ["Pending", "Pending"], "pending pods")
    assert "SchedulingDisabled" in deployed.kubectl("get", "nodes")
    name = deployed.kubectl("get", "pods", "-o", "name").split()[0]
    assert "1 node(s) were unschedulable" in deployed.kubectl("get", name, "-o", "jsonpath={.status.conditions}")
    until(lambda: "FailedScheduling" in deployed.kubectl("describe", name), "an Event on the pod")
    assert "Unschedulable:      true" in deployed.kubectl("describe", "node", "local")
    deployed.kubectl("uncordon", "local")
    deployed.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert phases(deployed) == ["Running", "Running"]


def test_a_server_side_dry_run_answers_like_a_write_and_changes_nothing(deployed: RunningMesh) -> None:
    objects = "\n---\n".join(
        (
            manifests.service_manifest("dry", {"http": 8080}),
            manifests.split_manifest("dry", "dry", {"dry-v1": 1}),
            json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dry"}}),
        )
    )
    done = deployed.try_kubectl("apply", "--dry-run=server", "-f", "-", stdin=objects)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created (server dry run)") == 3
    assert (
        "Warning: spec.service: Service default/dry not found" in done.stderr
    )  # a dry run ignores the other objects of the same request
    assert not deployed.kubectl("get", "svc,ts", "-o", "name", "--field-selector", "metadata.name=dry")
    scaled = deployed.kubectl("scale", "deployment/web", "--replicas=5", "--dry-run=server")
    assert "scaled" in scaled
    deployed.kubectl("delete", "deployment/web", "--dry-run=server")
    assert phases(deployed) == ["Running", "Running"]


@pytest.mark.parametrize("command", ["apply", "create", "delete", "replace"])
def test_kubectl_reports_a_misspelled_kind(own_mesh: RunningMesh, command: str) -> None:
    done = own_mesh.try_kubectl(command, "-f", "-", stdin=MISSPELLED)
    assert done.returncode == 1
    assert 'no matches for kind "TraficSplit" in version "split.smi-spec.io/v1alpha4"' in done.stderr


def test_api_resources_lists_kinds_with_their_short_names(own_mesh: RunningMesh) -> None:
    table = own_mesh.kubectl("api-resources", "--no-headers").splitlines()
    # the metrics groups have equal names, and come last
    rows = {row.split()[0]: row.split() for row in reversed(table)}
    assert rows["nodes"][1:] == ["no", "v1", "false", "Node"]
    assert rows["endpointslices"][1:] == ["ep", "discovery.k8s.io/v1", "true", "EndpointSlice"]
    own_mesh.kubectl("get", "ep")
    assert "NodeTrafficMetrics" in own_mesh.kubectl("api-resources", "--api-group=traffic.metrics.k8s.io")
