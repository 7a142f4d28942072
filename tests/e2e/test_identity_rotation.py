"""Certificates are renewed under load (R74, R76); test_identity_pods.py rotates the root certificate."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.e2e import identity_rig as rig
from tests.e2e.running_mesh import RunningMesh, headgate
from tests.waiting import until

ROTATIONS = 1


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
