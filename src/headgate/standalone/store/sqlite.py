"""The embedded store on disk: every call's changes in one SQLite transaction, before anybody is told of them.

What a crash may lose:

- `kill -9`, or a crash of headgate: nothing that was acknowledged. The commit is with the kernel then.
- Loss of power, or a crash of the kernel: the newest changes may be missing, never half of a call, and the file stays
  sound. SQLite syncs at checkpoints (each 4 MB of changes), not on each commit: `synchronous=NORMAL` commits in 0.02 ms,
  `FULL` took 0.2 ms on a fast disk and takes 10 ms or more on a slow one, and all of headgate waits for it.

After a restart of the machine the revision leaps ahead, so that it never goes back, not even when power was lost.
"""

import os
import sqlite3
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headgate.errors import StoreError, Unavailable
from headgate.objects.ports import Change
from headgate.resources.meta import Key, Object

_APPLICATION = 0x68656467  # "hedg": marks the file as ours
_FORMAT = 1
_ROOM = 64 * 1024  # bytes that must be free for the store to count as writable
_LEAP = 1_000_000  # more changes than can wait for a sync
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
    """Implements `memory.Journal` on one file; the lock of the state directory keeps other processes from it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> "SqliteJournal":
        """Open the file, or make it (0600, in a directory of 0700 where that is made too).

        Raises StoreError when it is damaged, or of a newer headgate.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(path, _connected(path))
        except OSError as error:
            raise StoreError(
                f"the store {path} can't be opened: {error.strerror}; mend that, or give another --state directory"
            ) from error

    def load(self) -> tuple[int, Sequence[Object]]:
        """Return the newest revision and all objects. Raises StoreError when the file is damaged."""
        with _explained(self._path):
            revision, boot = self._connection.execute("SELECT revision, boot FROM state").fetchone()
            if boot and boot != _boot():
                revision += _LEAP
            self._connection.execute("UPDATE state SET revision = ?, boot = ?", (revision, _boot()))
            rows = self._connection.execute("SELECT body FROM objects")
            return revision, [msgspec.json.decode(body) for (body,) in rows]

    def of_kind(self, group: str, kind: str) -> Sequence[Object]:
        """Return the objects of one kind. Raises StoreError when the file is damaged."""
        with _explained(self._path):
            rows = self._connection.execute('SELECT body FROM objects WHERE "group" = ? AND kind = ?', (group, kind))
            return [msgspec.json.decode(body) for (body,) in rows]

    def append(self, changes: Sequence[Change]) -> None:
        """Commit the changes of one call. Raises Unavailable when the disk refuses, and nothing is changed then."""
        with self._writing():
            self._write(changes)

    def check(self) -> None:
        """Commit a change of nothing, and write a file beside the store as large as many writes are.

        The log that a commit goes to may have room when the disk has none left. Raises Unavailable.
        """
        with self._writing():
            self._connection.execute("UPDATE state SET revision = revision")
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                file.write(b"\0" * _ROOM)
        except OSError as error:
            raise _unwritable(self._path, error.strerror) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _transaction(self._connection):
                yield
        except sqlite3.Error as error:
            raise _unwritable(self._path, error) from error

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


def _connected(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    with _explained(path):
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
        raise StoreError(f"{path} is a database of another program: give another --state directory")
    if version > _FORMAT:
        raise StoreError(
            f"the store {path} was written by a newer headgate (format {version}, this one reads {_FORMAT}): "
            "update headgate, or move the file away to begin without objects"
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
def _explained(path: Path) -> Iterator[None]:
    """Say what to do about a file that can't be read."""
    try:
        yield
    except (sqlite3.Error, msgspec.DecodeError, TypeError) as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _REFUSED_BY_DISK:
            raise _unwritable(path, error) from error
        raise StoreError(
            f"the store {path} can't be read ({error}): restore it from a copy, or move it and its -wal file away to begin "
            "with an empty one (objects from the manifests directory come back by themselves)"
        ) from error


def _unwritable(path: Path, reason: object) -> Unavailable:
    return Unavailable(f"the store {path} can't be written: {reason}; free space or mend the disk")


def _boot() -> str:
    """Name this run of the machine; where it has no name, every start counts as a new one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())
