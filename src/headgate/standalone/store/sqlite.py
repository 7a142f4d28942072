"""Persists the embedded store in SQLite: one transaction for the changes of a call, before watches return them.

What is lost in a crash:

- `kill -9` or a crash of headgate loses no acknowledged write, because the kernel already has the commit.
- A power loss or a kernel crash may lose the newest calls, each as a whole; the file stays consistent. SQLite syncs at
  checkpoints (each 4 MB of changes) and not at each commit. With `synchronous=NORMAL` a commit takes 0.02 ms; `FULL` took
  0.2 ms on a fast disk and takes 10 ms or more on a slow one, during which all of headgate waits.

After a reboot of the machine the revision skips ahead, so that each revision is unique even after a power loss.
"""

import os
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headgate.errors import StoreError, Unavailable
from headgate.objects.ports import Change
from headgate.resources.meta import Key, Object

_APPLICATION = 0x68656467  # "hedg", which marks the file as a store of headgate
_FORMAT = 1
_FREE_BYTES = 64 * 1024  # With fewer free bytes on the disk, `check` raises Unavailable.
# Added to the revision after a reboot; exceeds the number of changes that a power loss can lose.
_REVISION_SKIP = 1_000_000
_REFUSED_BY_DISK = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SCHEMA = """
CREATE TABLE objects (
    "group" TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY ("group", kind, namespace, name)
) WITHOUT ROWID;
CREATE TABLE state (revision INTEGER NOT NULL, boot TEXT NOT NULL);
INSERT INTO state VALUES (0, '');
"""
_PUT = 'INSERT INTO objects VALUES (?, ?, ?, ?, ?) ON CONFLICT ("group", kind, namespace, name) DO UPDATE SET body = excluded.body'
_DROP = 'DELETE FROM objects WHERE "group" = ? AND kind = ? AND namespace = ? AND name = ?'


class SqliteJournal:
    """Implements `memory.Journal` in a file. The lock of the state directory keeps out other processes."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self.failing_since = 0.0

    @classmethod
    def open(cls, path: Path) -> "SqliteJournal":
        """Open the file. Create it with mode 0600, and its directory with 0700, when they do not exist.

        Raises StoreError if the file is damaged, or was written by a newer headgate.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(path, _connect(path))
        except OSError as error:
            raise StoreError(
                f"can't open the store {path}: {error.strerror}; correct that, or choose another directory with --state"
            ) from error

    def load(self) -> tuple[int, Sequence[Object]]:
        """Return the newest revision and all objects. Raises StoreError when the file is damaged."""
        with _as_store_errors(self._path):
            revision, boot = self._connection.execute("SELECT revision, boot FROM state").fetchone()
            if boot and boot != _boot():
                revision += _REVISION_SKIP
            self._connection.execute("UPDATE state SET revision = ?, boot = ?", (revision, _boot()))
            rows = self._connection.execute("SELECT body FROM objects")
            return revision, [msgspec.json.decode(body) for (body,) in rows]

    def of_kind(self, group: str, kind: str) -> Sequence[Object]:
        """Return the objects of one kind. Raises StoreError when the file is damaged."""
        with _as_store_errors(self._path):
            rows = self._connection.execute('SELECT body FROM objects WHERE "group" = ? AND kind = ?', (group, kind))
            return [msgspec.json.decode(body) for (body,) in rows]

    def append(self, changes: Sequence[Change]) -> None:
        """Commit the changes of one call. Raises Unavailable and persists no change when the disk is full or fails."""
        with self._writing():
            self._write(changes)

    def check(self) -> None:
        """Commit an empty change and write a temporary file of `_FREE_BYTES` beside the store. Raises Unavailable.

        A commit alone proves little: SQLite's write-ahead log may have room left on a full disk.
        """
        with self._writing():
            self._connection.execute("UPDATE state SET revision = revision")
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                file.write(b"\0" * _FREE_BYTES)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _transaction(self._connection):
                yield
        except (sqlite3.Error, OSError) as error:
            self.failing_since = self.failing_since or time.time()
            reason = error.strerror if isinstance(error, OSError) else error
            raise _unwritable(self._path, reason) from error
        self.failing_since = 0.0

    def _write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.type == "DELETED":
                self._connection.execute(_DROP, _columns(change.key))
            else:
                self._connection.execute(_PUT, (*_columns(change.key), msgspec.json.encode(change.object)))
        self._connection.execute("UPDATE state SET revision = ?", (int(changes[-1].version),))

    def close(self) -> None:
        """Sync and close the file."""
        self._connection.close()


def _columns(key: Key) -> tuple[str, str, str, str]:
    return key.group, key.kind, key.namespace, key.name


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    with _as_store_errors(path):
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if (application, version, tables) == (0, 0, 0):
        with _transaction(connection):
            for statement in _statements():
                connection.execute(statement)
        return
    if application != _APPLICATION:
        raise StoreError(f"{path} is a database of another program; choose another directory with --state")
    if version > _FORMAT:
        raise StoreError(
            f"the store {path} was written by a newer headgate (format {version}, this one supports {_FORMAT}); "
            "update headgate, or move the file away to start without objects"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _statements() -> Iterable[str]:
    yield from _SCHEMA.split(";")
    yield f"PRAGMA application_id = {_APPLICATION}"
    yield f"PRAGMA user_version = {_FORMAT}"


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _as_store_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to StoreErrors that say what to do."""
    try:
        yield
    except (sqlite3.Error, msgspec.DecodeError, TypeError) as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _REFUSED_BY_DISK:
            raise _unwritable(path, error) from error
        raise StoreError(
            f"can't read the store {path}: {error}; restore it from a backup, or move it and its -wal file away to start "
            "with an empty store (headgate applies the manifests directory again)"
        ) from error


def _unwritable(path: Path, reason: object) -> Unavailable:
    return Unavailable(f"can't write the store {path}: {reason}; free disk space or repair the disk")


def _boot() -> str:
    """Return the boot ID of the machine, or a new ID when the kernel has none, so that each start counts as a reboot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())
