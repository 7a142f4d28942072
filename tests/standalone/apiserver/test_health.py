"""The health endpoints, also on a full disk and after space is free again."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.embedded_api import TOKEN, AsgiClient

from headgate.standalone.apiserver.app import create_app
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid():
        pytest.skip("only root may mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def on_small_disk(small_disk: Path) -> Iterator[AsgiClient]:
    journal = SqliteJournal.open(small_disk / "objects.sqlite")
    store = MemoryStore(journal=journal)
    yield AsgiClient(create_app(store, token=TOKEN), store)
    journal.close()


def fill(disk: Path) -> None:
    """Use all free blocks of the disk."""
    room = os.statvfs(disk)
    with (disk / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)


async def test_readyz_fails_while_the_disk_is_full_and_recovers(on_small_disk: AsgiClient, small_disk: Path) -> None:
    assert (await on_small_disk.call("GET", "/readyz")).code == 200
    fill(small_disk)
    answer = await on_small_disk.call("GET", "/readyz", authorization="")
    assert answer.code == 500
    assert answer.body.startswith(b"[+]ping ok\n[-]store failed: can't write the store ")
    assert b"free disk space or repair the disk\nreadyz check failed\n" in answer.body
    refused = await on_small_disk.call("POST", MAPS, {"metadata": {"name": "x"}, "data": {"a": "b" * 100_000}})
    assert refused.code == 503
    assert (await on_small_disk.call("GET", "/livez")).code == 200
    (small_disk / "ballast").unlink()
    assert (await on_small_disk.call("GET", "/readyz")).code == 200
    stored = await on_small_disk.call("POST", MAPS, {"metadata": {"name": "x"}, "data": {"a": "b" * 100_000}})
    assert stored.code == 201


async def test_a_health_check_changes_no_object(on_small_disk: AsgiClient) -> None:
    before = on_small_disk.store.revision
    await on_small_disk.call("GET", "/readyz")
    assert on_small_disk.store.revision == before


async def test_readyz_fails_with_a_read_only_journal(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "objects.sqlite")
    store = MemoryStore(journal=journal)
    client = AsgiClient(create_app(store, token=TOKEN), store)
    journal._connection.execute("PRAGMA query_only = ON")
    answer = await client.call("GET", "/readyz")
    assert (answer.code, b"attempt to write a readonly database" in answer.body) == (500, True)
    journal._connection.execute("PRAGMA query_only = OFF")
    assert (await client.call("GET", "/readyz")).code == 200
    journal.close()


@pytest.mark.parametrize(
    ("url", "code", "body"),
    [
        ("/readyz?verbose", 200, b"[+]ping ok\n[+]store ok\nreadyz check passed\n"),
        ("/readyz?verbose&exclude=store", 200, b"[+]ping ok\nreadyz check passed\n"),
        ("/readyz/store", 200, b"ok"),
        ("/livez?verbose", 200, b"[+]ping ok\nlivez check passed\n"),
        ("/healthz", 200, b"ok"),
    ],
)
async def test_health_endpoints_list_and_exclude_single_checks(
    client: AsgiClient, url: str, code: int, body: bytes
) -> None:
    answer = await client.call("GET", url)
    assert (answer.code, answer.body) == (code, body)
    assert (await client.call("GET", "/readyz/nothing")).code == 404
