"""Persists the embedded store in SQLite: one transaction for a call's changes, before watches return them.

What is lost in a crash:

- `kill -9` or a crash of headgate loses no acknowledged write, because the kernel already has the commit.
- A power loss or a kernel crash may lose the newest calls, each as a whole; the file stays consistent. SQLite syncs at
  checkpoints and not at each commit. With `synchronous=NORMAL` a commit takes 0.02 ms; `FULL` took 0.2 ms on a fast disk and
  takes 10 ms or more on a slow one, during which all of headgate waits.

A checkpoint copies the changes from the write-ahead log (WAL) into the main file: `CHECKPOINT_S` after a change, in another
thread, and when the store is closed. So the main file alone is a usable copy of the store.

After a reboot of the machine the revision skips ahead, so that each revision is unique even after a power loss.
"""

import asyncio
import logging
import os
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from headgate.errors import StoreError, Unavailable
from headgate.objects.ports import Change
from headgate.resources.meta import Key, Object
from headgate.standalone.store.file_users import other_users
from headgate.standalone.store.revision_mark import RevisionMark
from headgate.standalone.store.stored_rows import DamagedRow, StoredRow, checksum, keep_aside, kept_aside, read_object

log = logging.getLogger(__name__)
CHECKPOINT_S = 5.0
_APPLICATION = 0x68656467  # "hedg", which marks the file as a store of headgate
_FORMAT = 2  # format 1 has no checksums
_FREE_BYTES = 64 * 1024  # With fewer free bytes on the disk, `check` raises Unavailable.
# Added to the revision after a reboot; exceeds the number of changes that a power loss can lose.
_REVISION_SKIP = 1_000_000
_LOCK_WAIT_S = 1.0  # All of headgate waits while another program writes to the store; none needs to.
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_REFUSED_BY_DISK = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SCHEMA = """
CREATE TABLE objects (
    "group" TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
    checksum INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY ("group", kind, namespace, name)
) WITHOUT ROWID;
CREATE TABLE state (revision INTEGER NOT NULL, boot TEXT NOT NULL);
INSERT INTO state VALUES (0, '');
"""
_WITH_CHECKSUMS = """
ALTER TABLE objects ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE objects SET checksum = row_checksum("group", kind, namespace, name, body);
PRAGMA user_version = 2
"""
_PUT = """INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT ("group", kind, namespace, name) DO UPDATE SET body = excluded.body, checksum = excluded.checksum"""
# As bytes, because a damaged text may not be UTF-8.
_KEY_BYTES = 'CAST("group" AS BLOB), CAST(kind AS BLOB), CAST(namespace AS BLOB), CAST(name AS BLOB)'
_ROWS = f"SELECT {_KEY_BYTES}, CAST(body AS BLOB), checksum FROM objects"  # noqa: S608
_DROP_ROW = f"DELETE FROM objects WHERE ({_KEY_BYTES}) = (?, ?, ?, ?)"  # noqa: S608
_DROP = 'DELETE FROM objects WHERE "group" = ? AND kind = ? AND namespace = ? AND name = ?'


class SqliteJournal:
    """Implements `journal.Journal` in a file. The lock of the state directory keeps out other processes."""

    def __init__(self, path: Path, connection: sqlite3.Connection, mark: RevisionMark) -> None:
        self._path = path
        self._connection = connection
        self._mark = mark
        self._changed = asyncio.Event()
        self.failing_since = 0.0

    @classmethod
    def open(cls, path: Path) -> "SqliteJournal":
        """Open the file. Create it with mode 0600, and its directory with 0700, when they do not exist.

        Raises StoreError if the file is damaged, locked, or was written by a newer headgate.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_main_file(path)
            connection = _connect(path)
            try:
                return cls(path, connection, RevisionMark(path))
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise StoreError(
                f"can't open the store {path}: {error.strerror}; correct that, or choose another directory with --state"
            ) from error

    def load(self) -> tuple[int, Sequence[Object]]:
        """Return the newest revision and all objects. Raises StoreError when the file is damaged.

        Damaged rows move to files, and lost changes are noticed; both are logged.
        """
        with _as_store_errors(self._path):
            revision, boot = self._connection.execute("SELECT CAST(revision AS INTEGER), boot FROM state").fetchone()
            objects, damaged = self._read(_ROWS)
        revision = max([revision, *(int(obj["metadata"]["resourceVersion"]) for obj in objects)])
        for row, fault in damaged:
            self._put_aside(row, fault)
        if revision < (written := self._mark.read()):
            log.warning("%s", _lost_changes(self._path, revision, written))
        if boot and boot != _boot():
            revision += _REVISION_SKIP
        revision = max(revision, written)
        with self._writing():
            self._connection.execute("UPDATE state SET revision = ?, boot = ?", (revision, _boot()))
        self._mark.write(revision)
        self._changed.set()
        return revision, objects

    def of_kind(self, group: str, kind: str) -> Sequence[Object]:
        """Return the objects of one kind without damaged ones. Raises StoreError when the file is damaged."""
        with _as_store_errors(self._path):
            objects, _ = self._read(f'{_ROWS} WHERE "group" = ? AND kind = ?', group, kind)
            return objects

    def kept_aside(self) -> Sequence[Path]:
        """Return the files with damaged rows."""
        return kept_aside(self._path)

    def _read(self, query: str, *values: str) -> tuple[list[Object], list[tuple[StoredRow, DamagedRow]]]:
        objects, damaged = [], []
        for row in map(StoredRow._make, self._connection.execute(query, values)):
            try:
                objects.append(read_object(row))
            except DamagedRow as fault:
                damaged.append((row, fault))
        return objects, damaged

    def _put_aside(self, row: StoredRow, fault: DamagedRow) -> None:
        """Move a damaged row to a file. If that fails, the row stays in the database until the next start."""
        try:
            message = keep_aside(self._path, row, fault)
            with _transaction(self._connection):
                self._connection.execute(_DROP_ROW, row[:4])
        except (sqlite3.Error, OSError) as error:
            message = f"The object {row.key} in the store is damaged: {fault}. headgate runs without it: {error}."
        log.warning("%s", message)

    def append(self, changes: Sequence[Change]) -> None:
        """Commit one call's changes. Raises Unavailable and persists no change when the disk is full or fails."""
        with self._writing():
            self._write(changes)
        self._mark.write(int(changes[-1].version))
        self._changed.set()

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
            raise _unwritable(self._path, error) from error
        self.failing_since = 0.0

    def _write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.type == "DELETED":
                self._connection.execute(_DROP, _columns(change.key))
            else:
                row = (*_columns(change.key), msgspec.json.encode(change.object))
                self._connection.execute(_PUT, (*row, checksum(*row)))
        self._connection.execute("UPDATE state SET revision = ?", (int(changes[-1].version),))

    async def checkpoint_changes(self) -> None:
        """Checkpoint `CHECKPOINT_S` after each change, until canceled."""
        failing = False
        while True:
            await self._changed.wait()
            await asyncio.sleep(CHECKPOINT_S)
            self._changed.clear()
            try:
                await asyncio.to_thread(self.checkpoint)
                failing = False
            except (sqlite3.Error, OSError) as error:
                if not failing:
                    log.warning("%s; changes are only in its -wal file until then", _unwritable(self._path, error))
                failing = True
                self._changed.set()

    def checkpoint(self) -> None:
        """Copy all committed changes to the main file and sync it. Any thread may call this; no write waits for it."""
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=_LOCK_WAIT_S)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._mark.sync()

    def close(self) -> None:
        """Checkpoint and close the file. Without a reader of another program, only the main file remains."""
        with suppress(sqlite3.Error):  # a full disk: the changes stay in the -wal file
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        self._mark.close()


def _columns(key: Key) -> tuple[str, str, str, str]:
    return key.group, key.kind, key.namespace, key.name


def _check_main_file(path: Path) -> None:
    """Raise StoreError if the main file is missing or empty beside its write-ahead log, which SQLite would delete."""
    wal = path.with_name(f"{path.name}-wal")
    if _size(wal) and not _size(path):
        raise StoreError(
            f"the store {path} is missing or empty, though {wal.name} has changes to it; put it back, for example from a "
            f"backup, or move the files {path.name}* away to start without objects"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    with _as_store_errors(path):
        connection = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_WAIT_S)
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
    if version == 1:
        connection.create_function("row_checksum", 5, checksum, deterministic=True)
        with _transaction(connection):
            for statement in _WITH_CHECKSUMS.split(";"):
                connection.execute(statement)


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
    except (sqlite3.Error, TypeError) as error:
        if isinstance(error, sqlite3.OperationalError) and _code(error) in _REFUSED_BY_DISK | _LOCKED:
            raise _unwritable(path, error) from error
        raise StoreError(
            f"can't read the store {path}: {' '.join(str(error).split())}; restore it from a backup, or move its files ({path.name}*) away to start "
            "with an empty store (headgate applies the manifests directory again)"
        ) from error


def _unwritable(path: Path, error: sqlite3.Error | OSError) -> Unavailable:
    """Return the error for users, with the other processes that use a locked store."""
    if isinstance(error, OSError):
        return Unavailable(f"can't write the store {path}: {error.strerror}; free disk space or repair the disk")
    if _code(error) in _LOCKED:
        users = other_users((path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))))
        return Unavailable(f"can't write the store {path}: {error}, by {users}; end that process")
    return Unavailable(f"can't write the store {path}: {error}; free disk space or repair the disk")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors of the Python module have no code


def _lost_changes(path: Path, revision: int, written: int) -> str:
    return (
        f"Changes are lost: the store {path} ends at revision {revision}, but headgate wrote revision {written}. Its -wal file was "
        "removed or damaged, the machine lost power, or a backup was restored. `headgate history` names the lost objects of the mesh "
        "and `headgate rollback` restores them; apply the remaining objects again."
    )


def _boot() -> str:
    """Return the boot ID of the machine, or a new ID when the kernel has none, so that each start counts as a reboot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())
