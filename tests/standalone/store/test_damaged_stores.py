"""A start names what is damaged or lost in the store, and runs with the rest."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.make.objects import config_map

from headgate.errors import NotFound, StoreError, Unavailable
from headgate.objects import lifecycle
from headgate.resources.meta import Key, Object
from headgate.standalone.store import sqlite as module
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal
from headgate.standalone.store.stored_rows import StoredRow, checksum, read_object


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "objects.sqlite"


@contextmanager
def opened(path: Path) -> Iterator[MemoryStore]:
    with closing(SqliteJournal.open(path)) as journal:
        yield MemoryStore(journal=journal)


def key(name: str, namespace: str = "default") -> Key:
    return Key("", "ConfigMap", namespace, name)


def run_sql(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


async def stored(path: Path, *names: str) -> int:
    """Store ConfigMaps in a new store, and return the revision."""
    with opened(path) as store:
        for name in names:
            await store.create(config_map(name, {"text": "x" * 20}))
        return store.revision


async def killed(path: Path, *names: str) -> int:
    """Leave the files of a killed headgate, whose ConfigMaps are all in the WAL; return the revision."""
    copied = path.with_name("running") / path.name
    journal = SqliteJournal.open(copied)
    store = MemoryStore(journal=journal)
    for name in names:
        await store.create(config_map(name, {"text": "x" * 20}))
    for file in copied.parent.iterdir():
        shutil.copy(file, path.parent)
    journal.close()
    return store.revision


def lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if text.startswith("Changes are lost")]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("body = 'garbage'", "its content is not JSON"),
        ("body = x'ff00'", "its content is not JSON"),
        ("body = replace(CAST(body AS TEXT), 'xx', 'xy')", "its content differs from what headgate wrote"),
        ("body = '{}'", "its content differs"),
        ("checksum = 1", "its content differs"),
    ],
)
async def test_a_damaged_object_is_named_and_the_remaining_ones_are_loaded(
    path: Path, caplog: pytest.LogCaptureFixture, change: str, fault: str
) -> None:
    await stored(path, "a", "b", "c")
    run_sql(path, f"UPDATE objects SET {change} WHERE name = 'b'")
    with closing(sqlite3.connect(path)) as connection:
        (content,) = connection.execute("SELECT CAST(body AS BLOB) FROM objects WHERE name = 'b'").fetchone()
    with opened(path) as store:
        (message,) = caplog.messages
        assert f"The object ConfigMap default/b in the store is damaged: {fault}" in message
        names = [obj["metadata"]["name"] for obj in (await store.list("", "ConfigMap")).items]
        assert names == ["a", "c"]
        await store.create(config_map("b"))
    (kept,) = (path.parent / "damaged-objects").iterdir()
    assert str(kept) in message
    assert kept.read_bytes() == content
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    caplog.clear()
    with opened(path) as store:
        assert (await store.get(key("b")))["metadata"]["name"] == "b"
    assert caplog.messages == []


async def test_the_content_under_another_key_is_not_that_object(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A name with an escape sequence reaches neither the terminal nor a file name."""
    await stored(path, "a")
    run_sql(path, "UPDATE objects SET name = ? WHERE name = 'a'", "../\x1b[31m\u202e")
    with opened(path) as store:
        assert (await store.list("", "ConfigMap")).items == []
    (message,) = caplog.messages
    assert message.isprintable()
    assert r"ConfigMap default/../\x1b[31m\u202e in the store is damaged" in message
    (kept,) = (path.parent / "damaged-objects").iterdir()
    assert kept.name.startswith("ConfigMap_default_..__x1b_31m_u202e_")


async def test_a_damaged_object_that_can_not_be_kept_stays_in_the_database(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stored(path, "a")
    run_sql(path, "UPDATE objects SET body = 'x' WHERE name = 'a'")
    (path.parent / "damaged-objects").write_text("")  # a file in the place of the directory
    for _ in range(2):
        caplog.clear()
        with opened(path):
            assert "headgate runs without it" in caplog.text


async def test_a_damaged_namespace_is_created_again_for_its_objects(path: Path) -> None:
    with opened(path) as store:
        for name in ("empty", "team"):
            await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await store.create(config_map("a", namespace="team"))
    run_sql(path, "UPDATE objects SET body = 'x' WHERE kind IN ('Namespace', 'ServiceAccount')")
    with opened(path) as store:
        await store.create(config_map("b", namespace="team"))
        with pytest.raises(NotFound):
            await store.get(lifecycle.namespace_key("empty"))


async def test_a_damaged_state_row_costs_no_revision(path: Path) -> None:
    revision = await stored(path, "a")
    run_sql(path, "UPDATE state SET revision = 'x'")
    with opened(path) as store:
        assert store.revision == revision


async def test_a_store_without_checksums_gets_them(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await stored(path, "a")
    for statement in ("ALTER TABLE objects DROP COLUMN checksum", "PRAGMA user_version = 1"):
        run_sql(path, statement)
    with opened(path) as store:
        await store.get(key("a"))
    run_sql(path, "UPDATE objects SET body = replace(CAST(body AS TEXT), 'xx', 'xy') WHERE name = 'a'")
    with opened(path):
        assert "ConfigMap default/a in the store is damaged" in caplog.text


def remove(wal: Path) -> None:
    wal.unlink()


def cut(wal: Path) -> None:
    os.truncate(wal, wal.stat().st_size - 100)


def overwrite(wal: Path) -> None:
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wal.write_bytes(content)


@pytest.mark.parametrize("damage", [remove, cut, overwrite])
async def test_lost_changes_are_noticed_once_and_their_revisions_are_not_used_again(
    path: Path, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    path.parent.mkdir()
    assert callable(damage)
    written = await killed(path, *(f"m{number}" for number in range(20)))
    damage(path.with_name("objects.sqlite-wal"))
    with opened(path) as store:
        (message,) = lost(caplog)
        assert f"but headgate wrote revision {written}." in message
        assert "`headgate rollback` restores them" in message
        made = await store.create(config_map("next"))
        assert int(made["metadata"]["resourceVersion"]) > written
    caplog.clear()
    with opened(path):
        assert caplog.messages == []


async def test_a_killed_headgate_loses_nothing_and_reports_no_loss(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    revision = await killed(path, "a", "b")
    with opened(path) as store:
        assert store.revision == revision
        await store.get(key("b"))
    assert caplog.messages == []


async def test_a_missing_main_file_does_not_cost_the_changes_beside_it(path: Path) -> None:
    path.parent.mkdir()
    await killed(path, "a")
    content = path.read_bytes()
    for missing in (path.unlink, path.touch):
        missing()
        with pytest.raises(StoreError, match=r"missing or empty, though objects.sqlite-wal has changes"):
            SqliteJournal.open(path)
    path.write_bytes(content)
    with opened(path) as store:
        await store.get(key("a"))


async def test_a_checkpoint_makes_the_main_file_alone_a_copy_of_the_store(path: Path, tmp_path: Path) -> None:
    with closing(SqliteJournal.open(path)) as journal:
        store = MemoryStore(journal=journal)
        await store.create(config_map("a"))
        journal.checkpoint()
        copy = Path(shutil.copy(path, tmp_path / "copy.sqlite"))
    with opened(copy) as store:
        await store.get(key("a"))
    assert not path.with_name("objects.sqlite-wal").exists()


async def test_each_change_is_followed_by_a_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed checkpoint is repeated."""
    monkeypatch.setattr(module, "CHECKPOINT_S", 0.0)
    with closing(SqliteJournal.open(path)) as journal:
        store = MemoryStore(journal=journal)
        checkpoints: list[Object] = []

        def checkpoint() -> None:
            SqliteJournal.checkpoint(journal)
            with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as main:  # without the WAL
                rows = main.execute("SELECT body FROM objects WHERE kind = 'ConfigMap'")
                checkpoints.extend(json.loads(body) for (body,) in rows)
            if len(checkpoints) == 1:
                raise sqlite3.OperationalError("disk I/O error")
            if len(checkpoints) == 2:
                raise StopCheckpointsError

        monkeypatch.setattr(journal, "checkpoint", checkpoint)
        await store.create(config_map("a"))
        with pytest.raises(StopCheckpointsError):
            await journal.checkpoint_changes()
    assert [obj["metadata"]["name"] for obj in checkpoints] == ["a", "a"]


class StopCheckpointsError(Exception):
    """Ends the endless checkpoints of a test."""


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.read()
"""


async def test_a_locked_store_names_the_process_that_uses_it(path: Path) -> None:
    await stored(path, "a")
    with closing(SqliteJournal.open(path)) as journal:
        store = MemoryStore(journal=journal)
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout
            assert holder.stdin
            assert holder.stdout.readline() == b"\n"
            expected = rf"database is locked, by process {holder.pid} \(.*python.*\); end that process"
            with pytest.raises(Unavailable, match=expected):
                await store.create(config_map("b"))
            with closing(SqliteJournal.open(path)) as second, pytest.raises(StoreError, match=expected):
                second.load()
            holder.stdin.close()
        await store.create(config_map("b"))


def test_an_object_in_a_version_that_an_older_headgate_stored_is_read_in_hub_version() -> None:
    """TCPRoutes were stored as v1alpha2. An update of such an object would be refused."""
    metadata = {"namespace": "default", "name": "db", "uid": "1", "resourceVersion": "7"}
    group = "gateway.networking.k8s.io"
    old = {"apiVersion": f"{group}/v1alpha2", "kind": "TCPRoute", "metadata": metadata, "spec": {"rules": []}}
    columns = (group.encode(), b"TCPRoute", b"default", b"db", json.dumps(old).encode())
    assert read_object(StoredRow(*columns, checksum(*columns))) == {**old, "apiVersion": f"{group}/v1"}
