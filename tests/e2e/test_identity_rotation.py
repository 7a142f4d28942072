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
from tests.e2e.world import World, headgate
from tests.processes import stopped
from tests.waiting import until

ROTATIONS = 1
PHASES = ("stable", "trust-new", "sign-new", "drop-old", "stable")


def serials(world: World) -> Mapping[str, str]:
    """Return the serial number of the certificate in each Envoy, by the path of its admin socket."""
    found = {}
    for path in rig.admin_sockets(world):
        shown = json.loads(rig.ask_admin(world, path, "/certs"))["certificates"]
        own = {item["cert_chain"][0]["serial_number"] for item in shown if item.get("cert_chain")}
        if len(own) == 1:  # during a rotation listeners and clusters may have different certificates
            (found[path],) = own
    return found


def test_no_request_fails_when_certificates_are_renewed(new_world: Callable[..., World], tmp_path: Path) -> None:
    """Every proxy gets a new certificate, and opens new connections with it. A busy machine has 10 s for a renewal."""
    world = new_world("--certificate-lifetime", "20s", "--mtls", "strict", manifests=rig.site(tmp_path))
    seen: dict[str, set[str]] = {path: set() for path in rig.admin_sockets(world)}
    assert len(seen) == 3

    def renewed() -> bool:
        for path, serial in serials(world).items():
            seen[path].add(serial)
        return all(len(numbers) > ROTATIONS for numbers in seen.values())

    server = rig.pod(world, rig.SERVER)
    with rig.load_without_loss(world, tmp_path):
        before = rig.sidecar_counter(world, server, "ssl.handshake")
        until(renewed)
    assert (
        rig.sidecar_counter(world, server, "ssl.handshake") - before > ROTATIONS
    )  # new certificates cause new handshakes
    assert world.complaints == []


@pytest.mark.parametrize(
    ("lifetime", "message"),
    [("5s", "5s is not between 10 s and 720 h"), ("31d", "'31d' is not a duration"), ("1000h", "not between")],
)
def test_up_rejects_an_invalid_certificate_lifetime(tmp_path: Path, lifetime: str, message: str) -> None:
    done = headgate("up", str(tmp_path), "--state", str(tmp_path / "state"), "--certificate-lifetime", lifetime)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def secrets(world: World, path: str) -> Mapping[str, x509.Certificate]:
    """Return a proxy's certificate and its only trusted root certificate, from Envoy's config dump."""
    dump = json.loads(rig.ask_admin(world, path, "/config_dump?resource=dynamic_active_secrets"))
    active = {item["name"]: item["secret"] for item in dump["configs"]}
    chain = active["identity"]["tls_certificate"]["certificate_chain"]["inline_string"]
    (root,) = x509.load_pem_x509_certificates(
        active["roots"]["validation_context"]["trusted_ca"]["inline_string"].encode()
    )
    return {"identity": x509.load_pem_x509_certificate(chain.encode()), "root": root}


@contextmanager
def phases(world: World) -> Iterator[list[str]]:
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
    with rig.kubectl_lines(world, *words) as lines:
        reader = Thread(target=lambda: seen.extend(json.loads(line)["phase"] for line in lines))
        reader.start()
        yield seen
    reader.join()


def are_in_order(seen: Sequence[str]) -> bool:
    """Return whether the phases are in the order of a rotation; phases shorter than a second may be missing."""
    steps = iter(PHASES)
    return all(phase in steps for phase, _ in groupby(seen))


def test_no_request_fails_when_the_root_certificate_is_rotated(new_world: Callable[..., World], tmp_path: Path) -> None:
    """The status names a proxy that the rotation waits for, also after a restart; at the end no proxy trusts the old root."""
    world = new_world("--mtls", "strict", manifests=rig.site(tmp_path))
    old = world.headgate("ca", "roots").stdout
    caller = rig.sidecar_pid(world, rig.pod(world, rig.CALLER))
    waiting = "waiting for 1 proxy: sidecar/default/caller"
    with rig.load_without_loss(world, tmp_path), ExitStack() as stack:
        with stopped(caller):
            assert world.headgate("ca", "rotate").returncode == 0
            until(lambda: waiting in world.headgate("ca", "status").stdout)
            world.kill()
            world.start()
            # The new process writes its own.
            world.kubectl("delete", "configmap", "headgate-ca", "-n", "headgate-system")
            until(lambda: waiting in world.headgate("ca", "status").stdout)
            seen = stack.enter_context(phases(world))
            assert "1 of 3: every proxy starts to trust the new root" in world.headgate("ca").stdout
        until(lambda: "no rotation is in progress" in world.headgate("ca").stdout)
    assert "trust-new" in seen
    assert are_in_order(seen), seen
    new = world.headgate("ca", "roots").stdout
    assert new.count("BEGIN") == 1
    assert new != old
    for path in rig.admin_sockets(world):
        held = secrets(world, path)
        assert held["root"] == x509.load_pem_x509_certificate(new.encode())
        held["identity"].verify_directly_issued_by(held["root"])
    assert world.complaints == []
