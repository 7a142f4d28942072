"""HorizontalPodAutoscalers scale the workloads of one machine, by headgate's metrics and by processor time (R102)."""

import sys
from pathlib import Path
from typing import Any

from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import Object, container, deployment, manifest, obj, port, service
from tests.standalone.pods.machine import SERVER
from tests.waiting import until

MOST = 3
BURNS = "import os, sys, time\nwhile True:\n  busy = os.path.exists(sys.argv[1])\n  if busy: sum(range(100_000))\n  time.sleep(0.03 if busy else 1)"
"""Takes about a tenth of a processor while a file exists, which is ten times the target, and leaves the machine to other programs."""
BY_REQUESTS = {
    "type": "Pods",
    "pods": {"metric": {"name": "requests_per_second"}, "target": {"type": "AverageValue", "averageValue": "500m"}},
}
BY_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def program(name: str, source: str, *words: str, **fields: Any) -> Object:
    """Return a Deployment that runs Python source."""
    app = container("app", command=[sys.executable, "-S", "-c", source, *words], **fields)
    return deployment(name, app, namespace="", template={"terminationGracePeriodSeconds": 3})


def autoscaler(name: str, metric: Object) -> Object:
    """Return an autoscaler of a Deployment, which also scales down without delay."""
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "maxReplicas": MOST,
        "metrics": [metric],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    return obj("HorizontalPodAutoscaler", name, namespace="", version="autoscaling/v2", spec=spec)


def create(mesh: RunningMesh, namespace: str, *objects: Object) -> None:
    """Create objects with kubectl, which prints no warning."""
    with_warnings = mesh.try_kubectl("create", "-f", "-", "-n", namespace, stdin=manifest(*objects))
    assert (with_warnings.returncode, with_warnings.stderr) == (0, "")


def scaled(mesh: RunningMesh, namespace: str, name: str, replicas: int) -> None:
    """Wait until a Deployment has exactly these replicas, all available."""

    def is_scaled() -> bool:
        workload = mesh.get(f"deployment/{name}", namespace)
        return bool(workload["spec"]["replicas"] == replicas == workload["status"].get("availableReplicas"))

    try:
        until(is_scaled, f"{replicas} replicas of {name}", 240, poll=0.2)
    except AssertionError as error:
        raise AssertionError(mesh.kubectl("describe", f"hpa/{name}", "-n", namespace)) from error


def test_a_deployment_is_scaled_up_by_requests_and_down_without_them(mesh: RunningMesh, namespace: str) -> None:
    serving = program("web", SERVER, ports=[{"containerPort": 8080}])
    reached = service("web", port(8080, "http"), selector={"app": "web"}, namespace="")
    mesh.apply(manifest(reached, serving), namespace=namespace)
    scaled(mesh, namespace, "web", 1)
    create(mesh, namespace, autoscaler("web", BY_REQUESTS))
    with mesh.load(mesh.request("web", 8080, namespace=namespace)):
        scaled(mesh, namespace, "web", MOST)
        mesh.kubectl("wait", "hpa/web", f"--for=jsonpath={{.status.currentReplicas}}={MOST}", "-n", namespace)
        header, row = mesh.kubectl("get", "hpa", "-n", namespace).splitlines()
        assert header.split() == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
        name, reference, targets, *numbers = row.split()
        assert (name, reference, numbers[:3]) == ("web", "Deployment/web", ["1", "3", "3"])
        current, target = targets.split("/")
        assert target == "500m"
        assert current != "<unknown>"
    scaled(mesh, namespace, "web", 1)
    described = mesh.kubectl("describe", "hpa/web", "-n", namespace)
    for part in (
        "AbleToScale",
        "ValidMetricFound",
        "SuccessfulRescale",
        "New size: 3; reason: pods metric requests_per_second above target",
        "New size: 1; reason: All metrics below target",
    ):
        assert part in described


def test_a_deployment_is_scaled_by_processor_time(mesh: RunningMesh, namespace: str, tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    busy.touch()
    burning = program("burns", BURNS, str(busy), resources={"requests": {"cpu": "20m"}})
    create(mesh, namespace, burning, autoscaler("burns", BY_CPU))
    scaled(mesh, namespace, "burns", MOST)
    busy.unlink()
    scaled(mesh, namespace, "burns", 1)
    (row,) = mesh.kubectl("get", "hpa", "burns", "--no-headers", "-n", namespace).splitlines()
    assert row.split()[1:3] == ["Deployment/burns", "cpu:"]
    assert row.split()[3].endswith("%/50%")


def test_an_autoscaler_without_a_target_says_so(mesh: RunningMesh, namespace: str) -> None:
    create(mesh, namespace, autoscaler("lost", BY_CPU))
    _, _, message = mesh.event("FailedGetScale", "lost", namespace)
    assert message.endswith('the target\'s current scale: deployments.apps "lost" not found')
