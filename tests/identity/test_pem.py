"""An authority from the user's files: followed when they change, refused with words when they can't be used."""

import asyncio
import contextlib
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.identity.world import DOMAIN, openssl, root, verify, wanted

from headgate.identity.issuers import IssueError
from headgate.identity.pem import Files, PemIssuer
from headgate.latest import until

LIFETIME = timedelta(hours=24)


class Given:
    """Files of a user, made by openssl: a root, an intermediate below it, and a workload's certificate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.make("root", "-x509", "-addext", "basicConstraints=critical,CA:TRUE")
        below = ("-CA", self.path("root.crt"), "-CAkey", self.path("root.key"), "-x509")
        self.make("middle", *below, "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0")
        self.make("leaf", *below, "-addext", "basicConstraints=critical,CA:FALSE", usage="digitalSignature")

    def make(self, name: str, *options: object, usage: str = "keyCertSign") -> None:
        found = openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-days", "30", "-addext", f"keyUsage=critical,{usage}", *options,
            "-keyout", self.path(f"{name}.key"), "-out", self.path(f"{name}.crt"),
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        self.path(f"{name}.key").chmod(0o600)

    def path(self, name: str) -> Path:
        return self.directory / name

    def text(self, *names: str) -> str:
        return "".join(self.path(name).read_text() for name in names)

    def write(self, name: str, text: str) -> Path:
        self.path(name).write_text(text)
        return self.path(name)

    def issuer(self, certificate: str, key: str, roots: str = "") -> PemIssuer:
        files = Files(self.path(certificate), self.path(key), self.path(roots) if roots else None)
        return PemIssuer(files, DOMAIN, clock=time.time)


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


async def test_a_root_with_its_key_signs(given: Given, tmp_path: Path) -> None:
    credential = await given.issuer("root.crt", "root.key").issue(wanted("web", "foo"), LIFETIME)
    assert credential.roots == given.text("root.crt")
    assert verify(tmp_path, credential.chain, credential.roots) == ""


async def test_an_intermediate_is_shown_to_peers_that_know_the_root_only(given: Given, tmp_path: Path) -> None:
    given.write("chain.crt", given.text("middle.crt", "root.crt"))
    for certificate, roots in (("chain.crt", ""), ("middle.crt", "root.crt")):
        credential = await given.issuer(certificate, "middle.key", roots).issue(wanted(), LIFETIME)
        assert credential.roots == given.text("root.crt")
        assert credential.chain.count("BEGIN CERTIFICATE") == 2
        assert verify(tmp_path, credential.chain, credential.roots) == ""


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("absent.crt", "root.key", "absent.crt can't be read: No such file or directory; correct the path"),
        ("root.crt", "absent.key", "absent.key can't be read: No such file or directory; correct the path"),
        ("root.key", "root.key", "has no certificate that can be read"),
        ("root.crt", "root.crt", "has no private key that can be read"),
        ("root.crt", "middle.key", "does not belong to the certificate"),
        ("leaf.crt", "leaf.key", "is not a certificate authority's"),
        ("middle.crt", "middle.key", "which is no root; add the root to the file, or give it apart"),
        ("disordered.crt", "middle.key", "is not issued by"),
        ("binary.crt", "root.key", "is not PEM text; convert it"),
    ],
)
async def test_files_that_can_not_be_used_are_told_by_their_path(
    given: Given, certificate: str, key: str, words: str
) -> None:
    given.write("disordered.crt", given.text("middle.crt", "middle.crt", "root.crt"))
    given.path("binary.crt").write_bytes(b"\xff\xfe")
    given.path("root.crt").chmod(0o600)
    with pytest.raises(IssueError) as error:
        await given.issuer(certificate, key).issue(wanted(), LIFETIME)
    assert words in str(error.value)
    assert str(given.directory) in str(error.value)


async def test_roots_that_are_not_above_the_authority_are_refused(given: Given) -> None:
    given.write("other.crt", root(time.time()).certificate)
    with pytest.raises(IssueError, match="which no trusted root has issued"):
        await given.issuer("root.crt", "root.key", "other.crt").issue(wanted(), LIFETIME)


async def test_a_key_that_everybody_may_read_is_refused_with_the_command_that_helps(given: Given) -> None:
    given.path("root.key").chmod(0o644)
    with pytest.raises(IssueError, match=f"run: chmod o= {given.path('root.key')}"):
        await given.issuer("root.crt", "root.key").issue(wanted(), LIFETIME)
    given.path("root.key").chmod(0o640)  # as a mounted Secret with fsGroup has it
    await given.issuer("root.crt", "root.key").issue(wanted(), LIFETIME)


async def test_a_new_root_is_believed_then_signs_and_then_the_old_one_leaves(given: Given) -> None:
    """The documented sequence for roots that are the user's."""
    given.write("ca.crt", given.text("root.crt"))
    given.write("ca.key", given.text("root.key")).chmod(0o600)
    given.write("roots.crt", given.text("root.crt"))
    given.make("next", "-x509", "-addext", "basicConstraints=critical,CA:TRUE")
    issuer = given.issuer("ca.crt", "ca.key", "roots.crt")
    following = asyncio.create_task(issuer.run())
    await until(lambda: issuer.roots.get() == given.text("root.crt"), issuer.roots)
    old = issuer.signer.get()
    await replaced(given, "roots.crt", given.text("root.crt", "next.crt"))
    await until(lambda: issuer.roots.get() == given.text("root.crt", "next.crt"), issuer.roots)
    assert issuer.signer.get() == old
    await replaced(given, "ca.crt", given.text("next.crt"))
    await until(lambda: "does not belong" in issuer.fault.get(), issuer.fault)  # its key is still to come
    with pytest.raises(IssueError, match="does not belong"):
        await issuer.issue(wanted(), LIFETIME)
    await replaced(given, "ca.key", given.text("next.key"))
    await until(lambda: issuer.signer.get() != old, issuer.signer)
    assert issuer.fault.get() == ""
    await replaced(given, "roots.crt", given.text("next.crt"))
    await until(lambda: issuer.roots.get() == given.text("next.crt"), issuer.roots)
    await ended(following)


async def test_one_file_can_hold_the_old_root_and_the_new_one(given: Given, tmp_path: Path) -> None:
    given.make("next", "-x509", "-addext", "basicConstraints=critical,CA:TRUE")
    given.write("ca.crt", given.text("root.crt", "next.crt"))
    first = await given.issuer("ca.crt", "root.key").issue(wanted(), LIFETIME)
    given.write("ca.crt", given.text("next.crt", "root.crt"))
    second = await given.issuer("ca.crt", "next.key").issue(wanted(), LIFETIME)
    assert verify(tmp_path, first.chain, given.text("root.crt")) == ""
    assert verify(tmp_path, second.chain, given.text("next.crt")) == ""
    assert (first.roots, second.roots) == (given.text("root.crt", "next.crt"), given.text("next.crt", "root.crt"))
    assert first.chain.count("BEGIN CERTIFICATE") == second.chain.count("BEGIN CERTIFICATE") == 1


async def replaced(given: Given, name: str, text: str) -> None:
    given.write(f".{name}", text).chmod(0o600)
    given.path(f".{name}").replace(given.path(name))


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
