"""The manifests of a release on a real API server: `kubectl apply` creates all objects, and takes them again."""

import subprocess
from pathlib import Path

from tests.cluster.api_server import KubeApiServer
from tests.e2e.running_mesh import KUBECTL
from typer.testing import CliRunner

from headgate.cli.app import app

APPLY_S = 120


def apply(cluster: KubeApiServer, file: Path) -> list[str]:
    """Return the outcome of each object. Kubernetes 1.20 knows no rules of definitions, so kubectl does not validate."""
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "apply", "--validate=false", "-f", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=APPLY_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_kubectl_applies_the_manifests_of_a_release(new_cluster: KubeApiServer, tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["install", "--dry-run", "--image", "registry.example/headgate:1"])
    assert printed.exit_code == 0, printed.output
    file = tmp_path / "headgate.yaml"
    file.write_text(printed.stdout.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n"))
    first = apply(new_cluster, file)
    assert {line.rpartition(" ")[2] for line in first} == {"created"}
    assert len(first) == printed.stdout.count("\nkind: ")
    again = apply(new_cluster, file)  # the definitions are "configured" each time: this API server removes their rules
    assert {line.rpartition(" ")[2] for line in again} <= {"unchanged", "configured"}
