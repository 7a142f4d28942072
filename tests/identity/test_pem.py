"""Tests of an authority in the user's files: changes of the files, and errors about unusable ones."""

import asyncio
import contextlib
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.identity.fakes import DOMAIN, openssl, root, verify, wanted

from headgate.identity.issuers import IssueError
from headgate.identity.pem import Files, PemIssuer
from headgate.latest import until

LIFETIME = timedelta(hours=24)


class UserFiles:
    """Files created by openssl: a root, an intermediate signed by it, and a workload's certificate."""

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
def files(tmp_path: Path) -> UserFiles:
    return UserFiles(tmp_path)


async def test_a_root_with_its_key_can_sign_certificates(files: UserFiles, tmp_path: Path) -> None:
    credential = await files.issuer("root.crt", "root.key").issue(wanted("web", "foo"), LIFETIME)
    assert credential.roots == files.text("root.crt")
    assert verify(tmp_path, credential.chain, credential.roots) == ""


async def test_a_chain_contains_the_intermediate_for_peers_that_trust_only_the_root(
    files: UserFiles, tmp_path: Path
) -> None:
    files.write("chain.crt", files.text("middle.crt", "root.crt"))
    for certificate, roots in (("chain.crt", ""), ("middle.crt", "root.crt")):
        credential = await files.issuer(certificate, "middle.key", roots).issue(wanted(), LIFETIME)
        assert credential.roots == files.text("root.crt")
        assert credential.chain.count("BEGIN CERTIFICATE") == 2
        assert verify(tmp_path, credential.chain, credential.roots) == ""


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("absent.crt", "root.key", "absent.crt can't be read: No such file or directory; correct the path"),
        ("root.crt", "absent.key", "absent.key can't be read: No such file or directory; correct the path"),
        ("root.key", "root.key", "has no readable certificate"),
        ("root.crt", "root.crt", "has no readable private key"),
        ("root.crt", "middle.key", "does not belong to the certificate"),
        ("leaf.crt", "leaf.key", "is not a CA certificate"),
        ("middle.crt", "middle.key", "which is not a root certificate; append the root certificate to the file"),
        ("disordered.crt", "middle.key", "is not issued by"),
        ("binary.crt", "root.key", "is not PEM text; convert it"),
    ],
)
async def test_the_error_about_unusable_files_names_their_path(
    files: UserFiles, certificate: str, key: str, words: str
) -> None:
    files.write("disordered.crt", files.text("middle.crt", "middle.crt", "root.crt"))
    files.path("binary.crt").write_bytes(b"\xff\xfe")
    files.path("root.crt").chmod(0o600)
    with pytest.raises(IssueError) as error:
        await files.issuer(certificate, key).issue(wanted(), LIFETIME)
    assert words in str(error.value)
    assert str(files.directory) in str(error.value)


@pytest.mark.parametrize(
    ("permitted", "signs"), [(DOMAIN, True), (".local", True), ("example.org", False), (".example.org", False)]
)
async def test_an_authority_signs_only_for_trust_domains_that_its_constraints_permit(
    files: UserFiles, tmp_path: Path, permitted: str, signs: bool
) -> None:
    constraint = ("-addext", f"nameConstraints=critical,permitted;URI:{permitted}")
    files.make("limited", "-x509", "-addext", "basicConstraints=critical,CA:TRUE", *constraint)
    issuer = files.issuer("limited.crt", "limited.key")
    if signs:
        credential = await issuer.issue(wanted(), LIFETIME)
        assert verify(tmp_path, credential.chain, credential.roots) == ""
        return
    with pytest.raises(
        IssueError, match=f"limited.key can sign only for the trust domain {permitted}, not for {DOMAIN}"
    ):
        await issuer.issue(wanted(), LIFETIME)
    assert f"not for {DOMAIN}" in issuer.fault.get()


async def test_roots_that_have_not_issued_the_authority_are_rejected(files: UserFiles) -> None:
    files.write("other.crt", root(time.time()).certificate)
    with pytest.raises(IssueError, match="which no trusted root has issued"):
        await files.issuer("root.crt", "root.key", "other.crt").issue(wanted(), LIFETIME)


async def test_the_error_about_a_world_readable_key_has_the_chmod_command(files: UserFiles) -> None:
    files.path("root.key").chmod(0o644)
    with pytest.raises(IssueError, match=f"run: chmod o= {files.path('root.key')}"):
        await files.issuer("root.crt", "root.key").issue(wanted(), LIFETIME)
    files.path("root.key").chmod(0o640)  # as in a mounted Secret with fsGroup
    await files.issuer("root.crt", "root.key").issue(wanted(), LIFETIME)


async def test_a_user_replaces_the_root_in_three_steps(files: UserFiles) -> None:
    """The sequence in docs/tasks/certificates.md."""
    files.write("ca.crt", files.text("root.crt"))
    files.write("ca.key", files.text("root.key")).chmod(0o600)
    files.write("roots.crt", files.text("root.crt"))
    files.make("next", "-x509", "-addext", "basicConstraints=critical,CA:TRUE")
    issuer = files.issuer("ca.crt", "ca.key", "roots.crt")
    following = asyncio.create_task(issuer.run())
    await until(lambda: issuer.roots.get() == files.text("root.crt"), issuer.roots)
    old = issuer.signer.get()
    await replaced(files, "roots.crt", files.text("root.crt", "next.crt"))
    await until(lambda: issuer.roots.get() == files.text("root.crt", "next.crt"), issuer.roots)
    assert issuer.signer.get() == old
    await replaced(files, "ca.crt", files.text("next.crt"))
    await until(lambda: "does not belong" in issuer.fault.get(), issuer.fault)  # the key of next.crt is written later
    with pytest.raises(IssueError, match="does not belong"):
        await issuer.issue(wanted(), LIFETIME)
    await replaced(files, "ca.key", files.text("next.key"))
    await until(lambda: issuer.signer.get() != old, issuer.signer)
    assert issuer.fault.get() == ""
    await replaced(files, "roots.crt", files.text("next.crt"))
    await until(lambda: issuer.roots.get() == files.text("next.crt"), issuer.roots)
    await ended(following)


async def test_one_file_can_contain_the_old_and_the_new_root(files: UserFiles, tmp_path: Path) -> None:
    files.make("next", "-x509", "-addext", "basicConstraints=critical,CA:TRUE")
    files.write("ca.crt", files.text("root.crt", "next.crt"))
    first = await files.issuer("ca.crt", "root.key").issue(wanted(), LIFETIME)
    files.write("ca.crt", files.text("next.crt", "root.crt"))
    second = await files.issuer("ca.crt", "next.key").issue(wanted(), LIFETIME)
    assert verify(tmp_path, first.chain, files.text("root.crt")) == ""
    assert verify(tmp_path, second.chain, files.text("next.crt")) == ""
    assert (first.roots, second.roots) == (files.text("root.crt", "next.crt"), files.text("next.crt", "root.crt"))
    assert first.chain.count("BEGIN CERTIFICATE") == second.chain.count("BEGIN CERTIFICATE") == 1


async def replaced(files: UserFiles, name: str, text: str) -> None:
    files.write(f".{name}", text).chmod(0o600)
    files.path(f".{name}").replace(files.path(name))


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
