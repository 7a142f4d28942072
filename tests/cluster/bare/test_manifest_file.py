"""The manifests of a release on a real API server: kubectl applies them, and deletes their namespace."""

import asyncio
import subprocess
from pathlib import Path

from tests.cluster.api_server import KubeApiServer, controller
from tests.cluster.control_planes import DEADLINE_S, eventually
from tests.e2e.running_mesh import KUBECTL
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests

APPLY_S = 120
IMAGE = "registry.example/headgate:1"
OWN_NAMESPACE = "/api/v1/namespaces/headgate-system"


def apply(cluster: KubeApiServer, file: Path) -> list[str]:
    """Return the outcome of each object. Kubernetes 1.20 knows no rules of definitions, so kubectl does not validate."""
    command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig()), "apply", "--validate=false", "-f", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=APPLY_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


async def test_kubectl_applies_the_manifests_of_a_release_and_the_deletion_of_their_namespace_is_finished(
    new_cluster: KubeApiServer, tmp_path: Path
) -> None:
    """Kubernetes' controller deletes a namespace after it has read all APIs, also those whose server was in this namespace."""
    printed = CliRunner().invoke(app, ["install", "--dry-run", "--image", IMAGE])
    assert printed.exit_code == 0, printed.output
    file = tmp_path / "headgate.yaml"
    file.write_text(printed.stdout.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n"))
    first = apply(new_cluster, file)
    assert {line.rpartition(" ")[2] for line in first} == {"created"}
    assert len(first) == printed.stdout.count("\nkind: ")
    again = apply(new_cluster, file)  # the definitions are "configured" each time: this API server removes their rules
    assert {line.rpartition(" ")[2] for line in again} <= {"unchanged", "configured"}

    async with new_cluster.client() as client:
        installer = Installer(client)
        with controller(new_cluster, "namespace"):
            await assert_deletion_is_finished(new_cluster, installer)
            # Without registered APIs, namespaces are deleted although no replica runs.
            values = Values(image=IMAGE, budget_version="policy/v1beta1", options={"aggregated_apis": ""})
            outcomes = {outcome async for _, outcome in installer.apply(manifests(values))}
            assert outcomes == {"created", "configured", "unchanged"}
            new_cluster.namespace("shop")
            assert new_cluster.call("DELETE", "/api/v1/namespaces/shop")[0] == 200
            await eventually(lambda: new_cluster.call("GET", "/api/v1/namespaces/shop")[0] == 404)


async def assert_deletion_is_finished(cluster: KubeApiServer, installer: Installer) -> None:
    """Delete the namespace of the installation, and assert that the installer removes what blocks the deletion."""
    objects = manifests(Values(image=IMAGE, budget_version=await installer.budget_version()))
    assert cluster.call("DELETE", OWN_NAMESPACE)[0] == 200
    await eventually(lambda: "metrics" in str(cluster.call("GET", OWN_NAMESPACE)[1]))
    (line,) = await installer.terminating(objects)
    assert "Discovery failed for some groups" in line
    unblocked = [(obj["kind"], outcome) async for obj, outcome in installer.unblock_deletion(objects)]
    assert ("APIService", "deleted: its server is gone") in unblocked
    assert ("CustomResourceDefinition", "configured: without the conversion, whose server is gone") in unblocked
    async with asyncio.timeout(DEADLINE_S):
        await installer.wait_gone(objects)
    assert cluster.call("GET", OWN_NAMESPACE)[0] == 404
