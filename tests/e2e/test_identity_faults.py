"""Faults of certificates and the certificate authority: what still works, and what messages advise (R74, R76)."""

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER
from tests.e2e.test_privileges import unprivileged
from tests.e2e.world import World
from tests.waiting import until

from headgate.atomic_file import write_private
from headgate.identity.authority import Authority, new_root
from headgate.identity.keys import StoredAuthority, to_files

DOMAIN = "cluster.local"
DAY = 86_400
SHORT = ("--certificate-lifetime", "10s", "--mtls", "strict")


def fails(world: World) -> str:
    """Start headgate and assert that it fails; return its error message."""
    before = len(world.stderr)
    world.launch()
    assert world.process
    assert world.process.wait(60) == 1
    return world.stderr[before:]


def first_expiry(world: World) -> float:
    """Return the time at which the first of the proxies' certificates expires (seconds since the epoch)."""
    moments = []
    for path in rig.admin_sockets(world):
        shown = json.loads(rig.ask_admin(world, path, "/certs"))["certificates"]
        found = [chain["expiration_time"] for item in shown for chain in item.get("cert_chain", ())]
        moments += [time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone for text in found]
    return min(moments)


# --- the control plane is down


def test_calls_succeed_without_headgate_until_certificates_expire_and_after_its_restart(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    """Expired certificates end all calls: no proxy falls back to plaintext."""
    world = new_world(*SHORT, manifests=rig.site(tmp_path))
    server = rig.pod_address(rig.pod(world, SERVER))
    until(lambda: first_expiry(world) - time.time() > 7)  # every certificate is less than 3 s old
    with world.load(*rig.caller_requests(world)) as load:
        world.kill()
        last = first_expiry(world)
        until(lambda: load.counts.keys() - {SERVER})
        assert time.time() >= last  # no call failed before the certificates expired
        until(lambda: load.counts["503"] > 20)
        assert set(load.counts) == {SERVER, "503"}
        assert rig.plaintext_answer(server) == b""
        world.start()
        seen = load.counts[SERVER]
        until(lambda: load.counts[SERVER] > seen + 100)
    until(lambda: world.send(20, world.request(SERVER, 8080)) == {SERVER: 20})
    assert world.complaints == []


# --- the authority's private key


def test_up_fails_when_the_key_is_missing_or_readable_by_other_users(new_world: Callable[..., World]) -> None:
    """The message names the file and the remedy; with the restored key, headgate has the same root certificate."""
    world = new_world()
    roots = world.headgate("ca", "roots").stdout
    world.stop()
    key = world.state / "authority" / "current" / "tls.key"
    key.chmod(0o644)
    assert f"{key} is open to other users (mode 0644); run: chmod 600 {key}" in fails(world)
    key.chmod(0o600)
    content = key.read_bytes()
    key.unlink()
    message = fails(world)
    assert f"{key.parent} has tls.crt but no tls.key; restore it from a backup" in message
    assert "Traceback" not in message
    write_private(key, content)
    world.start()
    assert world.headgate("ca", "roots").stdout == roots


def test_up_fails_when_the_key_belongs_to_another_user(new_world: Callable[..., World]) -> None:
    world = unprivileged(new_world)
    world.stop()
    key = world.state / "authority" / "current" / "tls.key"
    if os.geteuid():
        key.chmod(0)
    else:
        os.chown(key, 0, 0)
    assert f"{key} can't be read: Permission denied; chown it to the user that runs headgate" in fails(world)


def test_a_restarted_headgate_without_a_usable_key_keeps_the_mesh_working(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    """Proxies keep their certificates; Events on pods name the error. headgate retries until the key is usable."""
    world = new_world("--mtls", "strict", manifests=rig.site(tmp_path))
    key = world.state / "authority" / "current" / "tls.key"
    with rig.load_without_loss(world, tmp_path) as load:
        world.kill()
        key.chmod(0o644)
        world.start()
        rig.wait_for_requests(load)
        advice = f"run: chmod 600 {key}"
        assert [item["reason"] for item in world.ready["findings"] if advice in item["message"]]
        assert f"error: {key} is open to other users (mode 0644); {advice}" in world.headgate("ca").stdout
        name = rig.pod(world, CALLER)["metadata"]["name"]
        until(
            lambda: [
                text for _, reason, text in world.events(name) if reason == "IdentityUnavailable" and advice in text
            ]
        )
        mark = len(world.lines)
        key.chmod(0o600)
        world.line(lambda line: [item for item in line.get("resolved", ()) if advice in item["message"]], mark)
        until(lambda: "certificates: 3 proxies have a certificate" in world.headgate("ca").stdout)
    assert "error:" not in world.headgate("ca").stdout


# --- validity periods, and a user's own certificate authority


def test_the_next_start_replaces_an_expired_root_certificate(new_world: Callable[..., World], tmp_path: Path) -> None:
    world = new_world("--mtls", "strict", manifests=rig.site(tmp_path))
    world.stop()
    old = new_root(DOMAIN, time.time() - 400 * DAY)
    current = world.state / "authority" / "current"
    for name, text in to_files(StoredAuthority(signing=old)).items():
        write_private(current / name, text.encode())
    world.start()

    def replaced() -> bool:  # at first the status may name the old root certificate
        shown = world.headgate("ca").stdout
        return shown.count("root CN=") == 1 and "expired" not in shown and "no rotation is in progress" in shown

    until(replaced)
    until(lambda: world.send(5, world.request(SERVER, 8080)) == {SERVER: 5})


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


def test_up_fails_with_an_authority_that_is_expired_or_not_valid_yet(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    given = UserAuthority(tmp_path)
    given.write(new_root(DOMAIN, time.time()))
    world = new_world(*given.options)
    world.stop()
    given.write(new_root(DOMAIN, time.time() + DAY))
    message = fails(world)
    assert f"in {given.certificate} and {given.key} is not valid before " in message
    assert "correct this machine's clock, or the clock of the machine that signed it" in message
    given.write(new_root(DOMAIN, time.time() - 400 * DAY))
    assert f"in {given.certificate} and {given.key} expired at " in fails(world)


def test_headgate_reports_an_expired_root_and_loads_a_new_root_without_a_restart(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    """Calls fail after the root certificate has expired; `headgate ca` and Events on the pods report it."""
    given = UserAuthority(tmp_path)
    first, brief, last = (new_root(DOMAIN, time.time() + 60 * number) for number in range(3))
    given.write(first)
    world = new_world(*SHORT, *given.options, manifests=rig.site(tmp_path))
    brief = new_root(DOMAIN, time.time(), timedelta(seconds=8))
    with world.load(*rig.caller_requests(world)) as load:
        given.write(brief, first)
        until(lambda: "expired" in world.headgate("ca").stdout)
        until(lambda: load.counts["503"] > 20)
        assert set(load.counts) == {SERVER, "503"}
        name = rig.pod(world, SERVER)["metadata"]["name"]
        until(lambda: [text for _, reason, text in world.events(name) if reason == "IdentityUnavailable"])
        given.write(last, brief, first)
        seen = load.counts[SERVER]
        until(lambda: load.counts[SERVER] > seen + 100)
    until(lambda: world.send(20, world.request(SERVER, 8080)) == {SERVER: 20})
