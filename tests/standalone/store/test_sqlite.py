"""What the store acknowledged is there again, whatever ended the process."""

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


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def key(name):
    return Key("", "ConfigMap", "default", name)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "store.db"


async def test_objects_and_the_revision_survive_a_restart(path):
    with opened(path) as store:
        kept = await store.create(config_map("kept", text="ü"))
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


async def test_changes_from_before_a_restart_are_no_longer_watched(path):
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


async def test_only_the_owner_can_read_it(path):
    with opened(path) as store:
        await store.create(config_map("a"))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be looked at" * 100, b"SQLite format 3\0" + b"\1" * 5000]
)
def test_a_damaged_file_says_what_to_do(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match="restore it from a copy, or move it"):
        SqliteJournal.open(path)


async def test_a_page_that_was_overwritten_is_noticed(path):
    with opened(path) as store:
        for index in range(200):
            await store.create(config_map(f"x{index}", text="y" * 500))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match="restore it from a copy"):
        SqliteJournal.open(path)


def test_a_newer_format_and_another_program_are_refused(path):
    with opened(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoreError, match=r"newer headgate \(format 2, this one reads 1\): update headgate"):
        SqliteJournal.open(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        SqliteJournal.open(path)


def test_a_directory_that_can_not_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"can't be opened: .*give another --state directory"):
        SqliteJournal.open(tmp_path / "file" / "store.db")


async def test_after_a_restart_of_the_machine_the_revision_leaps(path, tmp_path, monkeypatch):
    with opened(path) as store:
        revision = store.revision
    boot = tmp_path / "boot"
    boot.write_text("another run of the machine")
    monkeypatch.setattr(module, "_BOOT_ID", boot)
    with opened(path) as store:
        assert store.revision > revision + 100_000
        leapt = store.revision
    with opened(path) as store:
        assert store.revision == leapt


async def test_a_full_disk_changes_nothing(path):
    journal = SqliteJournal.open(path)
    store = MemoryStore(journal=journal)
    await store.create(config_map("a"))
    revision = store.revision
    (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match="full"):
        await store.create(config_map("big", text="x" * 100_000))
    assert store.revision == revision
    journal._connection.execute("PRAGMA max_page_count = 100000")
    await store.create(config_map("big", text="x" * 100_000))
    journal.close()
    with opened(path) as store:
        assert (await store.get(key("big")))["data"]["text"] == "x" * 100_000


def killed_while_writing(path, lines):
    """Run a writer until it has acknowledged some writes, kill it, and return all that it acknowledged."""
    with subprocess.Popen([sys.executable, WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        acknowledged = [json.loads(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
    return acknowledged + [json.loads(line) for line in rest if line.endswith("\n")]


async def test_what_was_acknowledged_survives_kill_9_at_any_moment(path):
    """Each round kills the writer at a random write; at most the one call that it had not reported may be besides."""
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
