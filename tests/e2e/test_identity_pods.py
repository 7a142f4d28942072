"""Pods and sidecars are replaced while callers send requests over mutual TLS (R74, R76)."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import SERVER
from tests.e2e.running_mesh import RunningMesh
from tests.make import objects
from tests.make.objects import manifest
from tests.waiting import until


def conditions(pod: Any) -> dict[str, str]:
    return {item["type"]: item["status"] for item in pod["status"]["conditions"]}


def test_a_client_has_its_certificate_before_there_is_a_server(new_mesh: Callable[..., RunningMesh]) -> None:
    """So its first request uses mutual TLS: an access rule would deny plaintext, which proves no identity (R74).

    Of 22 starts of examples/bookstore on a busy machine, 6 denied the first request of the buyer, which has no port.
    """
    client = objects.deployment("client", objects.container(command=["sleep", "600"]), namespace="")
    mesh = new_mesh(manifests={"client.yaml": manifest(client)})
    admin = rig.sidecar_admin_socket(mesh, rig.only_pod(mesh, "client"))

    def loaded() -> set[str]:
        dump = json.loads(rig.ask_admin(mesh, admin, "/config_dump?resource=dynamic_active_secrets"))
        return {secret["name"] for secret in dump.get("configs", ()) if secret["secret"].keys() > {"name"}}

    until(lambda: {"identity", "roots"} <= loaded(), "the certificate of a client")


def test_a_rollout_behind_sidecars_loses_no_request_over_mutual_tls(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """Each new pod has a new sidecar, certificate and address."""
    mesh = new_mesh("--mtls", "strict", manifests=rig.site(tmp_path, replicas=2))
    before = {pod["metadata"]["uid"] for pod in rig.pods(mesh, SERVER)}
    with rig.load_without_loss(mesh, tmp_path) as load:
        mesh.kubectl("rollout", "restart", f"deployment/{SERVER}")
        rig.headgate_wait(mesh, f"deployment/{SERVER}")
        until(
            lambda: not before & {pod["metadata"]["uid"] for pod in rig.pods(mesh, SERVER)}
        )  # the old pods have ended
        rig.wait_for_requests(load)
    assert len(rig.pods(mesh, SERVER)) == 2
    assert mesh.complaints == []


def test_a_killed_sidecar_loses_only_its_requests_in_flight(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """The pod is not ready until it has a new sidecar; meanwhile retries send requests to the other replica."""
    mesh = new_mesh("--mtls", "strict", manifests=rig.site(tmp_path, replicas=2))
    victim = rig.pods(mesh, SERVER)[0]
    name, first = victim["metadata"]["name"], rig.sidecar_pid(mesh, victim)
    requests = rig.caller_requests(mesh)
    watched = ["get", "pod", name, "-w", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}{'\\n'}"]
    with rig.kubectl_lines(mesh, *watched) as lines, mesh.load(*requests) as load:
        ready = (line.strip() for line in lines)
        assert next(ready) == "True"
        rig.wait_for_requests(load)
        os.kill(first, signal.SIGKILL)
        assert "False" in ready
        assert "True" in ready
        rig.wait_for_requests(load)
    lost = load.sent - load.counts[SERVER]
    assert lost <= len(requests), load.counts  # at most one request in flight on each connection
    assert set(load.counts) <= {SERVER, "503"}
    assert rig.sidecar_pid(mesh, victim) != first
    (now,) = [pod for pod in rig.pods(mesh, SERVER) if pod["metadata"]["name"] == name]
    assert (
        now["status"]["containerStatuses"] == victim["status"]["containerStatuses"]
    )  # the application was not restarted
    assert conditions(now)["headgate.dev/SidecarReady"] == "True"
    assert "headgate restarts it" in mesh.event("SidecarNotReady", name)[2]
