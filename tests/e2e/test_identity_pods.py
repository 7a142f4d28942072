"""Pods, sidecars and the certificate authority are replaced while callers send requests over mutual TLS (R74, R76)."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER
from tests.e2e.running_mesh import RunningMesh
from tests.make import objects
from tests.make.objects import manifest
from tests.processes import stopped
from tests.waiting import until

from headgate.atomic_file import write_private
from headgate.identity.authority import new_root
from headgate.identity.keys import StoredAuthority, to_files

PHASES = ("stable", "trust-new", "sign-new", "drop-old", "stable")


@pytest.fixture
def mesh(shared_mesh: Callable[..., RunningMesh]) -> RunningMesh:
    """Return a mesh of two servers and a caller, which accept mutual TLS only."""
    return shared_mesh(rig.two_servers, "--mtls", "strict")


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


def test_a_rollout_behind_sidecars_loses_no_request_over_mutual_tls(mesh: RunningMesh) -> None:
    """Each new pod has a new sidecar, certificate and address."""
    before = {pod["metadata"]["uid"] for pod in rig.pods(mesh, SERVER)}
    with rig.load_without_loss(mesh, mesh.root) as load:
        mesh.restart(SERVER)
        rig.headgate_wait(mesh, f"deployment/{SERVER}")
        until(
            lambda: not before & {pod["metadata"]["uid"] for pod in rig.pods(mesh, SERVER)}
        )  # the old pods have ended
        rig.wait_for_requests(load)
    assert len(rig.pods(mesh, SERVER)) == 2
    assert mesh.complaints == []


def test_a_killed_sidecar_loses_only_its_requests_in_flight(mesh: RunningMesh) -> None:
    """The pod is not ready until it has a new sidecar; meanwhile retries send requests to the other replica."""
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


# --- the certificate authority


def secrets(mesh: RunningMesh, path: str) -> Mapping[str, x509.Certificate]:
    """Return a proxy's certificate and its only trusted root certificate, from Envoy's config dump."""
    dump = json.loads(rig.ask_admin(mesh, path, "/config_dump?resource=dynamic_active_secrets"))
    active = {item["name"]: item["secret"] for item in dump["configs"]}
    chain = active["identity"]["tls_certificate"]["certificate_chain"]["inline_string"]
    (root,) = x509.load_pem_x509_certificates(
        active["roots"]["validation_context"]["trusted_ca"]["inline_string"].encode()
    )
    return {"identity": x509.load_pem_x509_certificate(chain.encode()), "root": root}


@contextmanager
def phases(mesh: RunningMesh) -> Iterator[list[str]]:
    """Watch the authority's ConfigMap; yield a list that contains the rotation's phases after the `with` block."""
    seen: list[str] = []
    words = [
        "get",
        "configmap",
        "headgate-ca",
        "-n",
        "headgate-system",
        "-w",
        "-o",
        r"jsonpath={.data.status\.json}{'\n'}",
    ]
    with rig.kubectl_lines(mesh, *words) as lines:
        reader = Thread(target=lambda: seen.extend(json.loads(line)["phase"] for line in lines))
        reader.start()
        yield seen
    reader.join()


def are_in_order(seen: Sequence[str]) -> bool:
    """Return whether the phases are in the order of a rotation; phases shorter than a second may be missing."""
    steps = iter(PHASES)
    return all(phase in steps for phase, _ in groupby(seen))


def test_no_request_fails_when_the_root_certificate_is_rotated(mesh: RunningMesh) -> None:
    """The status names a proxy that the rotation waits for, also after a restart; at the end no proxy trusts the old root."""
    old = mesh.headgate("ca", "roots").stdout
    caller = rig.sidecar_pid(mesh, rig.only_pod(mesh, rig.CALLER))
    waiting = "waiting for 1 proxy: sidecar/default/caller"
    with rig.load_without_loss(mesh, mesh.root), ExitStack() as stack:
        with stopped(caller):
            assert mesh.headgate("ca", "rotate").returncode == 0
            until(lambda: waiting in mesh.headgate("ca", "status").stdout)
            mesh.kill()
            mesh.start()
            # The new process writes its own.
            mesh.kubectl("delete", "configmap", "headgate-ca", "-n", "headgate-system")
            until(lambda: waiting in mesh.headgate("ca", "status").stdout)
            seen = stack.enter_context(phases(mesh))
            assert "1 of 3: every proxy starts to trust the new root" in mesh.headgate("ca").stdout
        until(lambda: "no rotation is in progress" in mesh.headgate("ca").stdout)
    assert "trust-new" in seen
    assert are_in_order(seen), seen
    new = mesh.headgate("ca", "roots").stdout
    assert new.count("BEGIN") == 1
    assert new != old
    for path in rig.admin_sockets(mesh):
        held = secrets(mesh, path)
        assert held["root"] == x509.load_pem_x509_certificate(new.encode())
        held["identity"].verify_directly_issued_by(held["root"])
    assert mesh.complaints == []


def test_a_restarted_headgate_without_a_usable_key_keeps_the_mesh_working(mesh: RunningMesh) -> None:
    """Proxies keep their certificates; Events on pods name the error. headgate retries until the key is usable."""
    key = mesh.state / "authority" / "current" / "tls.key"
    with rig.load_without_loss(mesh, mesh.root) as load:
        mesh.kill()
        key.chmod(0o644)
        mesh.start()
        rig.wait_for_requests(load)
        advice = f"run: chmod 600 {key}"
        assert [item["reason"] for item in mesh.ready["findings"] if advice in item["message"]]
        assert f"error: {key} is open to other users (mode 0644); {advice}" in mesh.headgate("ca").stdout
        name = rig.only_pod(mesh, CALLER)["metadata"]["name"]
        until(
            lambda: [
                text for _, reason, text in mesh.events(name) if reason == "IdentityUnavailable" and advice in text
            ]
        )
        mark = len(mesh.lines)
        key.chmod(0o600)
        mesh.line(lambda line: [item for item in line.get("resolved", ()) if advice in item["message"]], mark)
        until(lambda: "certificates: 4 proxies have a certificate" in mesh.headgate("ca").stdout)
    assert "error:" not in mesh.headgate("ca").stdout


def test_the_next_start_replaces_an_expired_root_certificate(mesh: RunningMesh) -> None:
    mesh.stop()
    old = new_root("cluster.local", time.time() - 400 * 86_400)
    current = mesh.state / "authority" / "current"
    for name, text in to_files(StoredAuthority(signing=old)).items():
        write_private(current / name, text.encode())
    mesh.start()

    def replaced() -> bool:  # at first the status may name the old root certificate
        shown = mesh.headgate("ca").stdout
        return shown.count("root CN=") == 1 and "expired" not in shown and "no rotation is in progress" in shown

    until(replaced)
    until(lambda: mesh.send(5, mesh.request(SERVER, 8080)) == {SERVER: 5})
