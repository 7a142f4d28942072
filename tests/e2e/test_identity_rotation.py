"""Certificates and the root certificate are rotated under load (R74, R76)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from threading import Thread

import pytest
from cryptography import x509
from tests.e2e import identity_rig as rig
from tests.e2e.running_mesh import RunningMesh, headgate
from tests.processes import stopped
from tests.waiting import until

ROTATIONS = 1
PHASES = ("stable", "trust-new", "sign-new", "drop-old", "stable")


def serials(mesh: RunningMesh) -> Mapping[str, str]:
    """Return the serial number of the certificate in each Envoy, by the path of its admin socket."""
    found = {}
    for path in rig.admin_sockets(mesh):
        shown = json.loads(rig.ask_admin(mesh, path, "/certs"))["certificates"]
        own = {item["cert_chain"][0]["serial_number"] for item in shown if item.get("cert_chain")}
        if len(own) == 1:  # during a rotation listeners and clusters may have different certificates
            (found[path],) = own
    return found


def test_no_request_fails_when_certificates_are_renewed(new_mesh: Callable[..., RunningMesh], tmp_path: Path) -> None:
    """Every proxy gets a new certificate, and opens new connections with it. A busy machine has 10 s for a renewal."""
    mesh = new_mesh("--certificate-lifetime", "20s", "--mtls", "strict", manifests=rig.site(tmp_path))
    seen: dict[str, set[str]] = {path: set() for path in rig.admin_sockets(mesh)}
    assert len(seen) == 3

    def renewed() -> bool:
        for path, serial in serials(mesh).items():
            seen[path].add(serial)
        return all(len(numbers) > ROTATIONS for numbers in seen.values())

    server = rig.only_pod(mesh, rig.SERVER)
    with rig.load_without_loss(mesh, tmp_path):
        before = rig.sidecar_counter(mesh, server, "ssl.handshake")
        until(renewed)
    assert (
        rig.sidecar_counter(mesh, server, "ssl.handshake") - before > ROTATIONS
    )  # new certificates cause new handshakes
    assert mesh.complaints == []


@pytest.mark.parametrize(
    ("lifetime", "message"),
    [("5s", "5s is not between 10 s and 720 h"), ("31d", "'31d' is not a duration"), ("1000h", "not between")],
)
def test_up_rejects_an_invalid_certificate_lifetime(tmp_path: Path, lifetime: str, message: str) -> None:
    done = headgate("up", str(tmp_path), "--state", str(tmp_path / "state"), "--certificate-lifetime", lifetime)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


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


def test_no_request_fails_when_the_root_certificate_is_rotated(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """The status names a proxy that the rotation waits for, also after a restart; at the end no proxy trusts the old root."""
    mesh = new_mesh("--mtls", "strict", manifests=rig.site(tmp_path))
    old = mesh.headgate("ca", "roots").stdout
    caller = rig.sidecar_pid(mesh, rig.only_pod(mesh, rig.CALLER))
    waiting = "waiting for 1 proxy: sidecar/default/caller"
    with rig.load_without_loss(mesh, tmp_path), ExitStack() as stack:
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
