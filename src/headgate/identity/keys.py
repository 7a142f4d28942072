"""Storage of the embedded authority's keys: private files on one machine, or a Secret.

Both use the file names of Secrets with the type kubernetes.io/tls. `tls.crt` and `tls.key` have the signing certificate and its
key. `ca.crt` contains the trusted roots for users; headgate never reads this file. During a rotation there is `next.crt`
with `next.key`, the next root, which proxies must trust before it signs. Later there is `previous.crt`, the old root; the
key of this root has been deleted. `answered` is the last handled request for a rotation. A write replaces everything
atomically, so a crash leaves the old or the new state.
"""

import asyncio
import base64
import binascii
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from headgate.atomic_file import write_private
from headgate.errors import AlreadyExists, Conflict, NotFound, StoreError
from headgate.identity.authority import Authority
from headgate.identity.certificates import to_base64
from headgate.identity.issuers import IssueError
from headgate.model.identities import PrivateText
from headgate.objects.ports import Store
from headgate.resources.meta import SYSTEM_NAMESPACE, Key, Object, Value

SECRET = Key("", "Secret", SYSTEM_NAMESPACE, "headgate-ca")
CURRENT = "current"
_GROUP_AND_OTHER = stat.S_IRWXG | stat.S_IRWXO
_FILES = ("tls.crt", "tls.key", "next.crt", "next.key", "previous.crt", "answered")


class StoredAuthority(Value, frozen=True, kw_only=True):
    """The stored state of an embedded authority. `next` is set in phase trust-new, `previous` (PEM) in phase sign-new."""

    signing: Authority
    next: Authority | None = None
    previous: str = ""
    answered: str = ""

    @property
    def roots(self) -> str:
        """The trusted roots as PEM, the signing root first."""
        return self.signing.certificate + (self.next.certificate if self.next else "") + self.previous


class KeyStore(Protocol):
    """Stores keys. `location` names the storage in messages."""

    location: str

    async def load(self) -> StoredAuthority | None:
        """Return the stored authority, None if there is none. Raises IssueError when it is unusable."""

    async def save(self, stored: StoredAuthority) -> None:
        """Replace the stored authority. If this fails, raise IssueError and keep the old state.

        It fails, for example, if another process has saved a state since `load`; then call `load` again.
        """


class FileKeyStore:
    """Stores the keys in files of mode 0600, in a directory of mode 0700.

    The symbolic link `current` leads to the directory with the latest files, and is replaced atomically.
    """

    def __init__(self, directory: Path) -> None:
        self.location = str(directory / CURRENT)
        self._directory = directory

    async def load(self) -> StoredAuthority | None:
        """Return the stored authority. Raises IssueError if the files are unusable, or if other users can read them."""
        return await asyncio.to_thread(self._load)

    async def save(self, stored: StoredAuthority) -> None:
        """Write the files to a new directory, then let the link point to it. Raises IssueError."""
        await asyncio.to_thread(self._save, stored)

    def _load(self) -> StoredAuthority | None:
        current = self._directory / CURRENT
        if not _exists(self._directory) or not _exists(current):
            return None
        _check_private(self._directory, "700")
        return from_files({name: _read_private(current / name) for name in _FILES}, self.location)

    def _save(self, stored: StoredAuthority) -> None:
        fresh = self._directory / f"keys-{secrets.token_hex(4)}"
        link = self._directory / f".{fresh.name}"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.mkdir(mode=0o700)
            for name, text in to_files(stored).items():
                write_private(fresh / name, text.encode())
            link.symlink_to(fresh.name)
            link.replace(self._directory / CURRENT)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            link.unlink(missing_ok=True)
            raise IssueError(f"the authority's keys can't be written to {self._directory}: {error.strerror}") from error
        for old in self._directory.glob("keys-*"):
            if old != fresh:
                shutil.rmtree(old, ignore_errors=True)


class SecretKeyStore:
    """Stores the keys in the Secret `headgate-ca` in `headgate-system`."""

    location = str(SECRET)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = ""

    async def load(self) -> StoredAuthority | None:
        """Return the stored authority. Raises IssueError."""
        try:
            secret = await self._store.get(SECRET)
        except NotFound:
            self._version = ""
            return None
        except StoreError as error:
            raise IssueError(f"the authority's keys can't be read from {SECRET}: {error}") from error
        self._version = secret["metadata"]["resourceVersion"]
        return from_files(_decoded(secret, self.location), self.location)

    async def save(self, stored: StoredAuthority) -> None:
        """Create or replace the Secret. Raises IssueError, for example if another client changed it since `load`."""
        try:
            secret = await self._write({name: to_base64(text) for name, text in to_files(stored).items()})
        except (Conflict, AlreadyExists) as error:
            raise IssueError(f"{SECRET} was changed by another client meanwhile; headgate reads it again") from error
        except StoreError as error:
            raise IssueError(f"the authority's keys can't be written to {SECRET}: {error}") from error
        self._version = secret["metadata"]["resourceVersion"]

    async def _write(self, data: Mapping[str, str]) -> Object:
        metadata: dict[str, Any] = {"name": SECRET.name, "namespace": SECRET.namespace}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
        if not self._version:
            await ensure_namespace(self._store, SECRET.namespace)
            return await self._store.create(secret)
        before = await self._store.get(SECRET)  # keeps labels and annotations of other clients
        metadata = {**before["metadata"], "resourceVersion": self._version}
        return await self._store.update({**before, "metadata": metadata, "data": data})


async def ensure_namespace(store: Store, name: str) -> None:
    """Create a namespace unless it exists. Raises StoreError."""
    try:
        await store.get(Key("", "Namespace", "", name))
    except NotFound:
        try:
            await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExists:
            return


def to_files(stored: StoredAuthority) -> dict[str, str]:
    """Return the content of each file; the keys are in plain text."""
    files = {
        "tls.crt": stored.signing.certificate,
        "tls.key": stored.signing.key.reveal(),
        "ca.crt": stored.roots,
        "next.crt": stored.next.certificate if stored.next else "",
        "next.key": stored.next.key.reveal() if stored.next else "",
        "previous.crt": stored.previous,
        "answered": stored.answered,
    }
    return {name: text for name, text in files.items() if text}


def from_files(files: Mapping[str, str], source: str) -> StoredAuthority:
    """Return the authority in these files; its certificates are not parsed. Raises IssueError when a file is missing."""
    signing, following = (_pair(files, part, source) for part in ("tls", "next"))
    if signing is None:
        raise IssueError(
            f"{source} has neither tls.crt nor tls.key; restore them from a backup, or remove {source} to start with a new authority"
        )
    return StoredAuthority(
        signing=signing, next=following, previous=files.get("previous.crt", ""), answered=files.get("answered", "")
    )


def _pair(files: Mapping[str, str], part: str, source: str) -> Authority | None:
    certificate, key = f"{part}.crt", f"{part}.key"
    present = [name for name in (certificate, key) if files.get(name)]
    if not present:
        return None
    if len(present) == 1:
        missing = key if present == [certificate] else certificate
        raise IssueError(
            f"{source} has {present[0]} but no {missing}; restore it from a backup, or remove {source} to start with a new"
            " authority (mutual TLS works again once every certificate is reissued)"
        )
    return Authority(certificate=files[certificate], key=PrivateText(files[key]))


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return True


def _check_private(path: Path, needed_mode: str) -> None:
    mode = path.stat().st_mode
    if mode & _GROUP_AND_OTHER:
        raise IssueError(f"{path} is open to other users (mode {mode & 0o777:04o}); run: chmod {needed_mode} {path}")


def _read_private(path: Path) -> str:
    """Return a file's text; empty if there is no file. Raises IssueError if it is unusable or not private."""
    try:
        _check_private(path, "600")
        return path.read_text("ascii")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError:
        raise IssueError(f"{path} is not PEM text; restore it from a backup") from None


def _unreadable(path: Path, error: OSError) -> IssueError:
    return IssueError(f"{path} can't be read: {error.strerror}; chown it to the user that runs headgate")


def _decoded(secret: Object, source: str) -> dict[str, str]:
    try:
        return {
            name: base64.b64decode(text, validate=True).decode("ascii")
            for name, text in (secret.get("data") or {}).items()
        }
    except (binascii.Error, ValueError, TypeError):
        raise IssueError(f"{source} has data that is not base64-encoded PEM text; restore it from a backup") from None
