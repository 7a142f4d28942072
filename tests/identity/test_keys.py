"""Tests of the storage of the embedded authority's keys: permissions, atomic writes, and damaged keys."""

import asyncio
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.identity.fakes import DAY, DOMAIN, START, MemoryKeyStore, root, wanted

from headgate.errors import Unavailable
from headgate.identity.authority import new_root
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import IssueError
from headgate.identity.keys import SECRET, FileKeyStore, KeyStore, SecretKeyStore, StoredAuthority
from headgate.standalone.store.memory import MemoryStore

LIFETIME = timedelta(hours=24)


@pytest.fixture(params=["files", "secret"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> KeyStore:
    return FileKeyStore(tmp_path / "ca") if request.param == "files" else SecretKeyStore(MemoryStore())


def embedded(keys: KeyStore, now: float = START) -> EmbeddedIssuer:
    return EmbeddedIssuer(keys, DOMAIN, clock=lambda: now)


async def test_the_authority_is_created_once_and_loaded_afterwards(keys: KeyStore) -> None:
    first, second = embedded(keys), embedded(keys)
    await first.run()
    await second.run()
    assert first.roots.get() == second.roots.get() != ""
    credential = await second.issue(wanted(), LIFETIME)
    assert (credential.roots, credential.issued) == (first.roots.get(), START)


@pytest.mark.parametrize(
    "stored",
    [
        StoredAuthority(signing=root()),
        StoredAuthority(signing=root(), next=root(), answered="tuesday"),
        StoredAuthority(signing=root(), previous=root().certificate),
    ],
)
async def test_every_state_is_loaded_as_it_was_saved(keys: KeyStore, stored: StoredAuthority) -> None:
    assert await keys.load() is None
    await keys.save(stored)
    assert await keys.load() == stored
    await keys.save(StoredAuthority(signing=stored.signing))
    assert await keys.load() == StoredAuthority(signing=stored.signing)


async def test_issuers_that_start_at_the_same_time_use_the_same_root() -> None:
    store = MemoryStore()
    found = [embedded(SecretKeyStore(store)) for _ in range(3)]
    await asyncio.gather(*(issuer.run() for issuer in found))
    assert len({issuer.roots.get() for issuer in found}) == 1


async def test_key_files_are_private_and_old_keys_are_deleted(tmp_path: Path) -> None:
    keys = FileKeyStore(tmp_path / "ca")
    old = root()
    await keys.save(StoredAuthority(signing=old))
    await keys.save(StoredAuthority(signing=root(), previous=old.certificate))
    paths = [path for path in (tmp_path / "ca").rglob("*") if not path.is_symlink()]
    for path in [tmp_path / "ca", *paths]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert sorted(path.name for path in paths if path.is_file()) == ["ca.crt", "previous.crt", "tls.crt", "tls.key"]
    assert not any(old.key.reveal() in path.read_text() for path in paths if path.is_file())


@pytest.mark.parametrize(
    ("name", "mode", "fix"),
    [("current/tls.key", 0o644, "chmod 600"), ("current/tls.key", 0o640, "chmod 600"), ("", 0o755, "chmod 700")],
)
async def test_the_error_about_keys_that_other_users_can_read_has_the_chmod_command(
    tmp_path: Path, name: str, mode: int, fix: str
) -> None:
    keys = FileKeyStore(tmp_path / "ca")
    await keys.save(StoredAuthority(signing=root()))
    path = (tmp_path / "ca" / name) if name else tmp_path / "ca"
    path.chmod(mode)
    with pytest.raises(IssueError, match=f"run: {fix} {path}"):
        await keys.load()


@pytest.mark.parametrize(("gone", "rest"), [("tls.key", "tls.crt"), ("tls.crt", "tls.key")])
async def test_an_incomplete_key_pair_is_a_fault_and_is_not_replaced(tmp_path: Path, gone: str, rest: str) -> None:
    keys = FileKeyStore(tmp_path / "ca")
    await keys.save(StoredAuthority(signing=root()))
    (tmp_path / "ca" / "current" / gone).unlink()
    issuer = embedded(keys)
    with pytest.raises(IssueError, match=f"has {rest} but no {gone}; restore it from a backup"):
        await issuer.issue(wanted(), LIFETIME)
    assert (tmp_path / "ca" / "current" / rest).exists()
    assert gone in issuer.fault.get()


async def test_a_secret_without_a_key_is_rejected() -> None:
    store = MemoryStore()
    keys = SecretKeyStore(store)
    await keys.save(StoredAuthority(signing=root()))
    secret = await store.get(SECRET)
    await store.update({**secret, "data": {"tls.crt": secret["data"]["tls.crt"]}})
    with pytest.raises(IssueError, match=r"Secret headgate-system/headgate-ca has tls.crt but no tls.key"):
        await SecretKeyStore(store).load()
    await store.update({**await store.get(SECRET), "data": {"tls.crt": "%%%"}})
    with pytest.raises(IssueError, match="has data that is not base64"):
        await SecretKeyStore(store).load()


async def test_a_secret_that_another_client_changed_is_not_overwritten() -> None:
    store = MemoryStore()
    first, second = SecretKeyStore(store), SecretKeyStore(store)
    await first.save(StoredAuthority(signing=root()))
    stored = await second.load()
    assert stored is not None
    theirs = StoredAuthority(signing=stored.signing, next=root())
    await second.save(theirs)
    with pytest.raises(IssueError, match="was changed by another client meanwhile"):
        await first.save(StoredAuthority(signing=root()))
    assert await first.load() == theirs


async def test_labels_of_other_clients_stay_on_the_secret() -> None:
    store = MemoryStore()
    keys = SecretKeyStore(store)
    await keys.save(StoredAuthority(signing=root()))
    secret = await store.get(SECRET)
    await store.update({**secret, "metadata": {**secret["metadata"], "labels": {"backup": "yes"}}})
    await keys.load()
    await keys.save(StoredAuthority(signing=root()))
    assert (await store.get(SECRET))["metadata"]["labels"] == {"backup": "yes"}


async def test_an_unavailable_store_is_reported() -> None:
    class UnavailableStore(MemoryStore):
        async def get(self, _key):
            raise Unavailable("the API server does not answer")

    with pytest.raises(IssueError, match=r"can't be read from Secret .*: the API server does not answer"):
        await SecretKeyStore(UnavailableStore()).load()


async def test_a_key_of_another_authority_is_rejected(tmp_path: Path) -> None:
    keys = FileKeyStore(tmp_path / "ca")
    await keys.save(StoredAuthority(signing=structs.replace(root(), key=root().key)))
    issuer = embedded(keys)
    await issuer.run()
    assert "does not belong to the certificate" in issuer.fault.get()
    assert issuer.roots.get() == ""


async def test_the_next_request_uses_keys_that_the_user_has_repaired(tmp_path: Path) -> None:
    keys = FileKeyStore(tmp_path / "ca")
    await keys.save(StoredAuthority(signing=root()))
    key = tmp_path / "ca" / "current" / "tls.key"
    text = key.read_text()
    key.write_text("rubbish")
    issuer = embedded(keys)
    with pytest.raises(IssueError, match="has no readable private key"):
        await issuer.issue(wanted(), LIFETIME)
    key.write_text(text)
    await issuer.issue(wanted(), LIFETIME)
    assert issuer.fault.get() == ""


async def test_the_error_about_an_unreadable_key_names_the_file(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    keys = FileKeyStore(tmp_path / "ca")
    await keys.save(StoredAuthority(signing=root()))
    (tmp_path / "ca" / "current" / "tls.key").chmod(0)
    with pytest.raises(IssueError, match=r"tls.key can't be read: Permission denied; chown it"):
        await keys.load()


async def test_the_error_about_an_unwritable_directory_names_the_directory(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("a file is in the way")
    issuer = embedded(FileKeyStore(tmp_path / "ca"))
    with pytest.raises(IssueError, match=r"ca"):
        await issuer.issue(wanted(), LIFETIME)
    assert issuer.roots.get() == ""


async def test_a_request_with_an_expired_root_or_a_wrong_clock_raises_an_error() -> None:
    keys = MemoryKeyStore(StoredAuthority(signing=root(days=1)))
    with pytest.raises(IssueError, match="expired at"):
        await embedded(keys, START + 2 * DAY).issue(wanted(), LIFETIME)
    with pytest.raises(IssueError, match="correct this machine's clock"):
        await embedded(keys, START - DAY).issue(wanted(), LIFETIME)


async def test_identities_of_another_trust_domain_are_rejected() -> None:
    for other in (wanted(domain="example.org"), structs.replace(wanted(), identity="spiffe://cluster.local/admin")):
        with pytest.raises(IssueError, match=r"is not an identity of the trust domain cluster.local"):
            await embedded(MemoryKeyStore()).issue(other, LIFETIME)


async def test_a_root_of_another_trust_domain_is_not_used_and_not_replaced() -> None:
    """Peers would reject all of its certificates, because its nameConstraints permit only the first trust domain."""
    stored = StoredAuthority(signing=new_root("example.org", START))
    keys = MemoryKeyStore(stored)
    issuer = embedded(keys)
    await issuer.run()
    assert (
        "in the test's memory can sign only for the trust domain example.org, not for cluster.local"
        in issuer.fault.get()
    )
    with pytest.raises(IssueError, match="correct --trust-domain, or use another authority"):
        await issuer.issue(wanted(), LIFETIME)
    assert await keys.load() == stored
    assert issuer.roots.get() == ""


async def test_keys_that_could_not_be_saved_are_not_used() -> None:
    """After a restart headgate would replace a lost root abruptly, without the three steps of a rotation."""
    keys = MemoryKeyStore()
    keys.fault = "no space left on the device"
    issuer = embedded(keys)
    with pytest.raises(IssueError, match="no space left"):
        await issuer.issue(wanted(), LIFETIME)
    assert issuer.roots.get() == ""
