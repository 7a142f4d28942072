"""The SQLite journal keeps acknowledged writes across restarts, crashes and full disks."""

import json
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.make.objects import config_map

from headgate.errors import Gone, NotFound, StoreError, Unavailable
from headgate.resources.meta import Key
from headgate.standalone.store import sqlite as module
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

WRITER = Path(__file__).with_name("crash_writer.py")


@contextmanager
def opened(path):
    journal = SqliteJournal.open(path)
    try:
        yield MemoryStore(journal=journal)
    finally:
        journal.close()


def key(name):
    return Key("", "ConfigMap", "default", name)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "store.db"


async def test_objects_and_the_revision_survive_a_restart(path):
    with opened(path) as store:
        kept = await store.create(config_map("kept", {"text": "ü"}))
        await store.create(config_map("dropped"))
        await store.delete(key("dropped"))
        revision = store.revision
    with opened(path) as store:
        assert store.revision == revision
        assert await store.get(key("kept")) == kept
        with pytest.raises(NotFound):
            await store.get(key("dropped"))
        made = await store.create(config_map("next"))
        assert made["metadata"]["resourceVersion"] == str(revision + 1)


async def test_a_watch_can_not_read_changes_from_before_a_restart(path):
    with opened(path) as store:
        since = store.revision
        await store.create(config_map("a"))
    with opened(path) as store:
        with pytest.raises(Gone, match="list again"):
            await anext(store.watch("", "ConfigMap", since=str(since)))
        watch = store.watch("", "ConfigMap", since=str(store.revision))
        await store.create(config_map("b"))
        assert (await anext(watch)).key == key("b")
        await watch.aclose()


async def test_only_the_owner_can_read_the_database_file(path):
    with opened(path) as store:
        await store.create(config_map("a"))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at" * 100, b"SQLite format 3\0" + b"\1" * 5000]
)
def test_a_damaged_database_raises_an_error_with_what_to_do(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"restore it from a backup, or move its files \(store.db\*\) away"):
        SqliteJournal.open(path)


async def test_an_overwritten_database_page_is_detected(path):
    with opened(path) as store:
        for index in range(200):
            await store.create(config_map(f"x{index}", {"text": "y" * 500}))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match="restore it from a backup"):
        SqliteJournal.open(path)


def test_a_database_of_a_newer_format_or_of_another_program_is_rejected(path):
    with opened(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(StoreError, match=r"newer headgate \(format 3, this one supports 2\); update headgate"):
        SqliteJournal.open(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        SqliteJournal.open(path)


def test_an_error_names_a_directory_that_can_not_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"can't open the store .*choose another directory with --state"):
        SqliteJournal.open(tmp_path / "file" / "store.db")


async def test_the_store_skips_revisions_after_a_reboot_of_the_machine(path, tmp_path, monkeypatch):
    with opened(path) as store:
        revision = store.revision
    boot = tmp_path / "boot"
    boot.write_text("the ID of another boot")
    monkeypatch.setattr(module, "_BOOT_ID", boot)
    with opened(path) as store:
        assert store.revision > revision + 100_000
        leapt = store.revision
    with opened(path) as store:
        assert store.revision == leapt


async def test_a_write_to_a_full_disk_changes_nothing(path):
    journal = SqliteJournal.open(path)
    store = MemoryStore(journal=journal)
    await store.create(config_map("a"))
    revision = store.revision
    (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match="full"):
        await store.create(config_map("big", {"text": "x" * 100_000}))
    assert store.revision == revision
    first = store.failing_since()
    assert first
    with pytest.raises(Unavailable, match="full"):
        await store.create(config_map("big", {"text": "x" * 100_000}))
    assert store.failing_since() == first
    journal._connection.execute("PRAGMA max_page_count = 100000")
    await store.create(config_map("big", {"text": "x" * 100_000}))
    assert not store.failing_since()
    journal.close()
    with opened(path) as store:
        assert (await store.get(key("big")))["data"]["text"] == "x" * 100_000


def killed_while_writing(path, lines):
    """Run the crash writer, kill it after at least `lines` acknowledged writes, and return these writes."""
    with subprocess.Popen([sys.executable, WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        acknowledged = [json.loads(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
    return acknowledged + [json.loads(line) for line in rest if line.endswith("\n")]


async def test_acknowledged_writes_survive_a_kill_9_at_any_moment(path):
    """Each round kills the writer at a random write. The store may contain at most one write that was not acknowledged."""
    chance = random.Random(7)
    expected: dict[str, str] = {}
    for _ in range(22):
        acknowledged = killed_while_writing(path, chance.randint(1, 120))
        for step in acknowledged:
            expected = step["objects"]
        with opened(path) as store:
            found = {obj["metadata"]["name"]: obj["data"]["n"] for obj in (await store.list("", "ConfigMap")).items}
            last = acknowledged[-1]
            assert store.revision >= last["revision"]
            if store.revision == last["revision"]:
                assert found == expected
            else:
                assert found == last["next"]
            expected = found
            assert {name.replace("child", "parent") for name in found} <= found.keys()
