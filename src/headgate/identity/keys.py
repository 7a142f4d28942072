"""Where the embedded authority keeps its keys: private files on one machine, or a Secret.

Either has the same names, like a Secret of type kubernetes.io/tls: `tls.crt` and `tls.key` sign, `ca.crt` is what the mesh
believes (for people; it is not read). During a rotation there is `next.crt` with `next.key`, which everybody is to
believe first, and later `previous.crt`, which signed before; its key is gone by then. `answered` is the last request for
a rotation. All of it is replaced in one step, so a crash leaves one state or the other.
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
from headgate.model.identities import SYSTEM_NAMESPACE, PrivateText
from headgate.objects.ports import Store
from headgate.resources.meta import Key, Object, Value

SECRET = Key("", "Secret", SYSTEM_NAMESPACE, "headgate-ca")
CURRENT = "current"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_FILES = ("tls.crt", "tls.key", "next.crt", "next.key", "previous.crt", "answered")


class StoredAuthority(Value, frozen=True, kw_only=True):
    """What an embedded authority is made of. `next` is there while it waits to be believed, `previous` (PEM) while certificates of it are."""

    signing: Authority
    next: Authority | None = None
    previous: str = ""
    answered: str = ""

    @property
    def roots(self) -> str:
        """What the mesh is to believe, as PEM; the one that signs comes first."""
        return self.signing.certificate + (self.next.certificate if self.next else "") + self.previous


class KeyStore(Protocol):
    """A place for keys; `place` names it in messages."""

    place: str

    async def load(self) -> StoredAuthority | None:
        """Return what is kept; none when there is nothing at all. Raises IssueError when it is not usable."""

    async def save(self, kept: StoredAuthority) -> None:
        """Replace what is kept. Raises IssueError; what was kept before is kept then.

        When somebody else has written since `load`, that is kept, too: load again.
        """


class FileKeyStore:
    """Files of mode 0600 in a directory of mode 0700, below a link `current` that is replaced at once."""

    def __init__(self, directory: Path) -> None:
        self.place = str(directory / CURRENT)
        self._directory = directory

    async def load(self) -> StoredAuthority | None:
        """Return what is kept. Raises IssueError, also when others than the owner may read it."""
        return await asyncio.to_thread(self._load)

    async def save(self, kept: StoredAuthority) -> None:
        """Write files beside those that are there, then put them into force. Raises IssueError."""
        await asyncio.to_thread(self._save, kept)

    def _load(self) -> StoredAuthority | None:
        current = self._directory / CURRENT
        if not _exists(self._directory) or not _exists(current):
            return None
        _check_private(self._directory, "700")
        return from_files({name: _read_private(current / name) for name in _FILES}, self.place)

    def _save(self, kept: StoredAuthority) -> None:
        fresh = self._directory / f"keys-{secrets.token_hex(4)}"
        link = self._directory / f".{fresh.name}"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.mkdir(mode=0o700)
            for name, text in to_files(kept).items():
                write_private(fresh / name, text.encode())
            link.symlink_to(fresh.name)
            link.replace(self._directory / CURRENT)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            link.unlink(missing_ok=True)
            raise IssueError(f"the authority's keys can't be kept in {self._directory}: {error.strerror}") from error
        for old in self._directory.glob("keys-*"):
            if old != fresh:
                shutil.rmtree(old, ignore_errors=True)


class SecretKeyStore:
    """The Secret `headgate-ca` in `headgate-system`."""

    place = str(SECRET)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = ""

    async def load(self) -> StoredAuthority | None:
        """Return what is kept. Raises IssueError."""
        try:
            secret = await self._store.get(SECRET)
        except NotFound:
            self._version = ""
            return None
        except StoreError as error:
            raise IssueError(f"the authority's keys can't be read from {SECRET}: {error}") from error
        self._version = secret["metadata"]["resourceVersion"]
        return from_files(_decoded(secret, self.place), self.place)

    async def save(self, kept: StoredAuthority) -> None:
        """Replace the Secret, or make it. Raises IssueError, also when somebody else has changed it since it was read."""
        try:
            stored = await self._write({name: to_base64(text) for name, text in to_files(kept).items()})
        except (Conflict, AlreadyExists) as error:
            raise IssueError(
                f"{SECRET} was changed by another writer meanwhile; what it holds now is read again"
            ) from error
        except StoreError as error:
            raise IssueError(f"the authority's keys can't be kept in {SECRET}: {error}") from error
        self._version = stored["metadata"]["resourceVersion"]

    async def _write(self, data: Mapping[str, str]) -> Object:
        metadata: dict[str, Any] = {"name": SECRET.name, "namespace": SECRET.namespace}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
        if not self._version:
            await ensure_namespace(self._store, SECRET.namespace)
            return await self._store.create(secret)
        before = await self._store.get(SECRET)  # with its labels and annotations, which are its owner's
        metadata = {**before["metadata"], "resourceVersion": self._version}
        return await self._store.update({**before, "metadata": metadata, "data": data})


async def ensure_namespace(store: Store, name: str) -> None:
    """Make a namespace unless it is there. Raises StoreError."""
    try:
        await store.get(Key("", "Namespace", "", name))
    except NotFound:
        try:
            await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExists:
            return


def to_files(kept: StoredAuthority) -> dict[str, str]:
    """Return what is kept by name; the keys are in plain text."""
    files = {
        "tls.crt": kept.signing.certificate,
        "tls.key": kept.signing.key.reveal(),
        "ca.crt": kept.roots,
        "next.crt": kept.next.certificate if kept.next else "",
        "next.key": kept.next.key.reveal() if kept.next else "",
        "previous.crt": kept.previous,
        "answered": kept.answered,
    }
    return {name: text for name, text in files.items() if text}


def from_files(files: Mapping[str, str], place: str) -> StoredAuthority:
    """Read what is kept; content is looked at later. Raises IssueError when a part is missing: a new authority would be believed by nobody."""
    signing, following = (_pair(files, part, place) for part in ("tls", "next"))
    if signing is None:
        raise IssueError(
            f"{place} has neither tls.crt nor tls.key; restore them from a copy, or remove {place} to begin with a new authority"
        )
    return StoredAuthority(
        signing=signing, next=following, previous=files.get("previous.crt", ""), answered=files.get("answered", "")
    )


def _pair(files: Mapping[str, str], part: str, place: str) -> Authority | None:
    certificate, key = f"{part}.crt", f"{part}.key"
    present = [name for name in (certificate, key) if files.get(name)]
    if not present:
        return None
    if len(present) == 1:
        missing = key if present == [certificate] else certificate
        raise IssueError(
            f"{place} has {present[0]} but no {missing}; restore it from a copy, or remove {place} to begin with a new"
            " authority (workloads believe each other again when all have their new certificates)"
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


def _check_private(path: Path, wanted: str) -> None:
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise IssueError(f"{path} is open to other users (mode {mode & 0o777:04o}); run: chmod {wanted} {path}")


def _read_private(path: Path) -> str:
    """Return a file's text, nothing when there is none. Raises IssueError, also when others may read it."""
    try:
        _check_private(path, "600")
        return path.read_text("ascii")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError:
        raise IssueError(f"{path} is not PEM text; restore it from a copy") from None


def _unreadable(path: Path, error: OSError) -> IssueError:
    return IssueError(f"{path} can't be read: {error.strerror}; give it back to the user who runs headgate")


def _decoded(secret: Object, place: str) -> dict[str, str]:
    try:
        return {
            name: base64.b64decode(text, validate=True).decode("ascii")
            for name, text in (secret.get("data") or {}).items()
        }
    except (binascii.Error, ValueError, TypeError):
        raise IssueError(f"{place} has data that is not base64 of PEM text; restore it from a copy") from None
