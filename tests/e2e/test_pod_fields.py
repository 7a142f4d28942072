"""A Deployment with the fields that people write: files by mount, a claim, a gRPC probe, a native sidecar and hooks."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import config_map, container, deployment, manifest, obj
from tests.processes import runs
from tests.waiting import until

SERVER = """
import os, time
from concurrent.futures import ThreadPoolExecutor

import grpc

ANSWERS = {"open": b"\\x08\\x01", "closed": b"\\x08\\x02"}  # SERVING and NOT_SERVING of grpc.health.v1


def check(_request, _context):
    return ANSWERS[open("/etc/site/door").read().strip()]


with open("/var/lib/site/starts", "a") as starts:
    starts.write("start\\n")
server = grpc.server(ThreadPoolExecutor(2))
methods = {"Check": grpc.unary_unary_rpc_method_handler(check)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods),))
server.add_insecure_port(os.environ["HOST"] + ":" + os.environ["PORT"])
server.start()
time.sleep(3600)
"""


def settings(door: str) -> str:
    return manifest(config_map("site", {"door": door, "server.py": SERVER}))


def shell(script: str) -> dict[str, object]:
    return {"exec": {"command": ["sh", "-c", script]}}


def site() -> str:
    """Return the manifests of the Deployment and its claim."""
    data = {"name": "data", "mountPath": "/var/lib/site"}
    app = container(
        command=[sys.executable, "/opt/site/server.py"],
        ports=[{"containerPort": 8080}],
        volumeMounts=[
            data,
            {"name": "site", "mountPath": "/etc/site"},
            {"name": "site", "mountPath": "/opt/site/server.py", "subPath": "server.py"},
        ],
        readinessProbe={"grpc": {"port": 8080}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1},
        lifecycle={
            "postStart": shell("echo postStart >> /var/lib/site/hooks"),
            "preStop": shell("echo preStop >> /var/lib/site/hooks"),
        },
    )
    helper = {**container("helper", command=["sleep", "3600"], volumeMounts=[data]), "restartPolicy": "Always"}
    volumes = [
        {"name": "site", "configMap": {"name": "site"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    made = deployment("site", app, labels={"app": "site"})
    made["spec"]["template"]["spec"] |= {"volumes": volumes, "initContainers": [helper]}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return "\n---\n".join((manifest(made), manifest(obj("PersistentVolumeClaim", "data", version="v1", spec=spec))))


def is_ready(mesh: RunningMesh) -> bool:
    return bool(mesh.get("deployment/site").get("status", {}).get("readyReplicas"))


def test_a_deployment_finds_its_files_keeps_its_claim_and_leaves_nothing_behind(
    new_mesh: Callable[..., RunningMesh],
) -> None:
    mesh = new_mesh(manifests={"site.yaml": site(), "settings.yaml": settings("open")})
    if [event for event in mesh.get("events")["items"] if event["reason"] == "VolumesNotMounted"]:
        pytest.skip("this machine allows no mounts")
    until(lambda: is_ready(mesh))
    (claim,) = (mesh.state / "volumes").iterdir()
    assert mesh.kubectl("get", "persistentvolumeclaim", "data", "-o", "jsonpath={.status.phase}") == "Bound"

    mesh.write("settings.yaml", settings("closed"))  # the running program reads the change, and its probe fails
    until(lambda: not is_ready(mesh))
    mesh.write("settings.yaml", settings("open"))
    until(lambda: is_ready(mesh))
    assert (claim / "starts").read_text() == "start\n"

    mesh.kill()
    mesh.start()  # the next headgate adopts the processes
    until(lambda: is_ready(mesh))
    assert (claim / "starts").read_text() == "start\n"
    mesh.kubectl("delete", "pod", "--all")
    until(lambda: (claim / "starts").read_text() == "start\n" * 2 and is_ready(mesh))
    # The replacement starts while the deleted pod still stops.
    until(lambda: sorted((claim / "hooks").read_text().split()) == ["postStart", "postStart", "preStop"])
    until(lambda: len(mesh.get("pods")["items"]) == 1)

    processes = [pid for name, pid in mesh.processes().items() if name != "envoy"]
    assert len(processes) == 2
    mesh.kill()
    assert mesh.headgate("down").returncode == 0
    assert not any(runs(pid) for pid in processes)
    assert not Path("/opt/site").exists()
    assert not Path("/var/lib/site").exists()
    assert str(mesh.state) not in Path("/proc/self/mounts").read_text()

    mesh.start()
    mesh.remove("site.yaml")
    until(lambda: not claim.exists())
