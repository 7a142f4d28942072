"""`headgate wait`, `try`, `logs` and `version` against a running headgate."""

import json
import subprocess
from pathlib import Path

from tests.e2e.manifests import counting_deployment, external, service_manifest, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.headgate_program import command
from tests.make.objects import container, manifest, pod
from tests.waiting import until


def headgate(mesh: RunningMesh, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of headgate with the mesh's state directory."""
    return subprocess.run(
        [*command(), *words, "--state", str(mesh.state)], capture_output=True, text=True, timeout=60, check=False
    )


def test_wait_returns_when_the_new_weights_are_active(mesh: RunningMesh, web: str) -> None:
    request = mesh.request("web", 8080, namespace=web)
    for step in range(3):
        weights = {"web-v1": 1, "web-v2": step}
        mesh.kubectl("apply", "-n", web, "-f", "-", stdin=split_manifest("web", "web", weights))
        waited = headgate(mesh, "wait", "trafficsplit/web", "-n", web, "--timeout", "60s")
        assert waited.returncode == 0, waited.stderr
        assert mesh.send(6, request) == {"v1": 6 // (1 + step), **({"v2": 6 - 6 // (1 + step)} if step else {})}


def test_wait_names_the_missing_object_when_it_times_out(mesh: RunningMesh, namespace: str) -> None:
    waited = headgate(mesh, "wait", "trafficsplit/missing", "-n", namespace, "--timeout", "300ms")
    assert waited.returncode == 124
    assert "missing" in waited.stderr


def test_kubectl_wait_returns_when_a_split_is_programmed(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        split_manifest("web", "web", {"web-v1": 1}),
        namespace=namespace,
    )
    output = mesh.kubectl("wait", "trafficsplit/web", "-n", namespace, "--for=condition=Programmed", "--timeout=60s")
    assert "condition met" in output


def test_try_counts_the_answers_of_each_backend(mesh: RunningMesh, namespace: str) -> None:
    v1, v2 = mesh.backend("v1"), mesh.backend("v2")
    mesh.apply(
        external("web"),
        external("web-v1", v1),
        external("web-v2", v2),
        split_manifest("web", "web", {"web-v1": 3, "web-v2": 1}),
        namespace=namespace,
    )
    tried = headgate(mesh, "try", f"http://web.{namespace}:8080/", "--number", "200", "-o", "json")
    assert tried.returncode == 0, tried.stderr
    assert (v1.reset_count(), v2.reset_count()) == (150, 50)
    counted = {item["backend"]: item["requests"] for item in json.loads(tried.stdout)["backends"]}
    assert counted == {f"{namespace}/web-v1": 150, f"{namespace}/web-v2": 50}


def test_try_fails_when_a_request_fails(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(external("web"), external("web-v1"), split_manifest("web", "web", {"web-v1": 1}), namespace=namespace)
    tried = headgate(mesh, "try", f"http://web.{namespace}:8080/", "--number", "20")
    assert tried.returncode == 1
    assert "503" in tried.stdout + tried.stderr


def test_logs_prints_the_output_of_a_pod(mesh: RunningMesh, namespace: str, tmp_path: Path) -> None:
    labels = {"app": "talker"}
    written = counting_deployment("talker", tmp_path / "count", labels=labels, ports={"http": 8080})
    greeting = written.replace('["', '["sh", "-c", "echo hello from $POD_NAME; exec \\"$0\\" \\"$@\\"", "', 1)
    mesh.apply(greeting, service_manifest("talker", {"http": 8080}, selector=labels), namespace=namespace)
    pods = until(lambda: mesh.get("pods", namespace)["items"])
    name = pods[0]["metadata"]["name"]
    until(lambda: headgate(mesh, "logs", name, "-n", namespace).stdout == f"hello from {name}\n")


def test_version_names_the_versions_of_headgate_and_envoy(mesh: RunningMesh) -> None:
    versions = json.loads(headgate(mesh, "version", "-o", "json").stdout)
    assert versions["envoy"]
    assert versions["headgate"]


def test_sourcing_the_env_file_makes_kubectl_the_plugin_and_headgate_work(mesh: RunningMesh) -> None:
    script = "source $0 && kubectl get namespaces && kubectl traffic --help && headgate version"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(mesh.root)}
    words = ["bash", "-c", script, str(mesh.state / "env")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment, cwd="/")
    assert done.returncode == 0, done.stderr
    assert "\ndefault " in done.stdout
    assert "topology" in done.stdout
    assert f"process {mesh.instance['pid']}" in done.stdout
    assert (mesh.state / "env").stat().st_mode & 0o777 == 0o600


def test_kubectl_debug_names_exec_and_copies_a_pod(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(
        manifest(pod("web", namespace="", containers=[container(command=["sleep", "1000"])])), namespace=namespace
    )
    refused = mesh.try_kubectl("debug", "web", "-n", namespace, "--image=busybox")
    assert refused.returncode == 1
    assert "use `kubectl exec -it POD -- sh`, or `kubectl debug POD --copy-to=NAME" in refused.stderr
    words = ("--copy-to=copied", "--container=app", "--", "sh", "-c", "echo copied; exec sleep 1000")
    mesh.kubectl("debug", "web", "-n", namespace, *words)
    until(lambda: mesh.try_kubectl("logs", "copied", "-n", namespace).stdout == "copied\n", "the output of the copy")
