"""Faults of certificates and the certificate authority: what still works, and what messages advise (R74, R76)."""

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import SERVER
from tests.e2e.running_mesh import RunningMesh, unprivileged
from tests.waiting import until

from headgate.atomic_file import write_private
from headgate.identity.authority import Authority, new_root

DOMAIN = "cluster.local"
DAY = 86_400
SHORT = ("--certificate-lifetime", "10s", "--mtls", "strict")


def fails(mesh: RunningMesh) -> str:
    """Start headgate and assert that it fails; return its error message."""
    before = len(mesh.stderr)
    mesh.launch()
    assert mesh.process
    assert mesh.process.wait(60) == 1
    return mesh.stderr[before:]


def first_expiry(mesh: RunningMesh) -> float:
    """Return the time at which the first of the proxies' certificates expires (seconds since the epoch)."""
    moments = []
    for path in rig.admin_sockets(mesh):
        shown = json.loads(rig.ask_admin(mesh, path, "/certs"))["certificates"]
        found = [chain["expiration_time"] for item in shown for chain in item.get("cert_chain", ())]
        moments += [time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone for text in found]
    return min(moments)


# --- the control plane is down


def test_calls_succeed_without_headgate_until_certificates_expire_and_after_its_restart(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """Expired certificates end all calls: no proxy falls back to plaintext."""
    mesh = new_mesh(*SHORT, manifests=rig.site(tmp_path))
    server = rig.pod_address(rig.only_pod(mesh, SERVER))
    until(lambda: first_expiry(mesh) - time.time() > 4)  # enough for calls after the end of headgate
    with mesh.load(*rig.caller_requests(mesh)) as load:
        mesh.kill()
        last = first_expiry(mesh)
        until(lambda: load.counts.keys() - {SERVER})
        assert time.time() >= last  # no call failed before the certificates expired
        until(lambda: load.counts["503"] > 20)
        assert set(load.counts) == {SERVER, "503"}
        assert rig.plaintext_answer(server) == b""
        mesh.start()
        seen = load.counts[SERVER]
        until(lambda: load.counts[SERVER] > seen + 100)
    until(lambda: mesh.send(20, mesh.request(SERVER, 8080)) == {SERVER: 20})
    assert mesh.complaints == []


# --- the authority's private key


def test_up_fails_when_the_key_is_missing_or_not_the_users_alone(new_mesh: Callable[..., RunningMesh]) -> None:
    """The message names the file and the remedy; with the restored key, headgate has the same root certificate."""
    mesh = unprivileged(new_mesh)
    roots = mesh.headgate("ca", "roots").stdout
    mesh.stop()
    key = mesh.state / "authority" / "current" / "tls.key"
    key.chmod(0o644)
    assert f"{key} is open to other users (mode 0644); run: chmod 600 {key}" in fails(mesh)
    key.chmod(0o600)
    content, owner = key.read_bytes(), key.stat()
    if os.geteuid():
        key.chmod(0)
    else:
        os.chown(key, 0, 0)
    assert f"{key} can't be read: Permission denied; chown it to the user that runs headgate" in fails(mesh)
    key.unlink()
    message = fails(mesh)
    assert f"{key.parent} has tls.crt but no tls.key; restore it from a backup" in message
    assert "Traceback" not in message
    write_private(key, content)
    os.chown(key, owner.st_uid, owner.st_gid)
    mesh.start()
    assert mesh.headgate("ca", "roots").stdout == roots


# --- validity periods, and a user's own certificate authority


class UserAuthority:
    """A user's certificate authority in files."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = directory / "ca.crt", directory / "ca.key"

    def write(self, signing: Authority, *trusted: Authority) -> None:
        """Write the signing key, and one file with the signing certificate and the other trusted root certificates."""
        write_private(self.key, signing.key.reveal().encode())
        write_private(self.certificate, "".join(item.certificate for item in (signing, *trusted)).encode())

    @property
    def options(self) -> tuple[str, ...]:
        return ("--ca-cert", str(self.certificate), "--ca-key", str(self.key))


def test_up_fails_with_an_authority_that_is_expired_or_not_valid_yet(unstarted: RunningMesh, tmp_path: Path) -> None:
    given = UserAuthority(tmp_path)
    mesh, unstarted.options = unstarted, given.options
    given.write(new_root(DOMAIN, time.time() + DAY))
    message = fails(mesh)
    assert f"in {given.certificate} and {given.key} is not valid before " in message
    assert "correct this machine's clock, or the clock of the machine that signed it" in message
    given.write(new_root(DOMAIN, time.time() - 400 * DAY))
    assert f"in {given.certificate} and {given.key} expired at " in fails(mesh)


def test_headgate_reports_an_expired_root_and_loads_a_new_root_without_a_restart(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """Calls fail after the root certificate has expired; `headgate ca` and Events on the pods report it."""
    given = UserAuthority(tmp_path)
    first, brief, last = (new_root(DOMAIN, time.time() + 60 * number) for number in range(3))
    given.write(first)
    mesh = new_mesh(*SHORT, *given.options, manifests=rig.site(tmp_path))
    brief = new_root(DOMAIN, time.time(), timedelta(seconds=8))
    with mesh.load(*rig.caller_requests(mesh)) as load:
        given.write(brief, first)
        until(lambda: "expired" in mesh.headgate("ca").stdout)
        until(lambda: load.counts["503"] > 20)
        assert set(load.counts) == {SERVER, "503"}
        name = rig.only_pod(mesh, SERVER)["metadata"]["name"]
        until(lambda: [text for _, reason, text in mesh.events(name) if reason == "IdentityUnavailable"])
        given.write(last, brief, first)
        seen = load.counts[SERVER]
        until(lambda: load.counts[SERVER] > seen + 100)
    until(lambda: mesh.send(20, mesh.request(SERVER, 8080)) == {SERVER: 20})
