"""Processes that share a cluster, with programs that only note their calls."""

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pods.kit import CannotStart, Sharing
from tests.waiting import until

Calls = Callable[[], list[str]]
SCRIPT = """#!/bin/sh
echo {name} >> {directory}/log
while [ -e {directory}/slow ]; do sleep 0.05; done
if [ -e {directory}/broken ]; then echo no etcd >&2; exit 1; fi
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return a function that returns the starts and ends of the cluster."""
    for name in ("up", "down", "build-image", "env"):
        program = tmp_path / name
        program.write_text(SCRIPT.format(name=name, directory=tmp_path))
        program.chmod(0o755)
    monkeypatch.setenv("HEADGATE_TEST_CLUSTER", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return lambda: [line for line in (tmp_path / "log").read_text().split() if line in {"up", "down"}]


def waits_for(lock: Path) -> bool:
    """Return whether a process waits for the lock of a file."""
    waiting = [line for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(f":{lock.stat().st_ino} " in line for line in waiting)


def test_one_process_starts_the_cluster_and_the_last_process_ends_it(calls: Calls, tmp_path: Path) -> None:
    first, second = Sharing(tmp_path), Sharing(tmp_path)
    (tmp_path / "slow").touch()
    users = [threading.Thread(target=sharing.use, kwargs={"alone": False}) for sharing in (first, second)]
    for user in users:
        user.start()
    until(lambda: waits_for(tmp_path / "once.lock"), "a process that waits for the start")
    (tmp_path / "slow").unlink()
    for user in users:
        user.join()
    assert calls() == ["up"]
    first.leave()
    assert calls() == ["up"]
    second.leave()
    assert calls() == ["up", "down"]
    installs = list[str]()
    third = Sharing(tmp_path)
    third.use(alone=False)
    third.once("installed", lambda: installs.append("headgate"))
    third.leave()
    assert installs == ["headgate"]
    assert calls() == ["up", "down", "up", "down"]


def test_a_module_that_needs_the_cluster_alone_waits_until_the_other_processes_have_left_it(
    calls: Calls, tmp_path: Path
) -> None:
    first, second, installs = Sharing(tmp_path), Sharing(tmp_path), list[str]()
    for sharing in (first, second):
        sharing.use(alone=False)
        sharing.once("installed", lambda: installs.append("headgate"))
    assert installs == ["headgate"]
    alone = threading.Thread(target=first.use, kwargs={"alone": True})
    alone.start()
    until(lambda: waits_for(tmp_path / "modules.lock"), "a request for a lock that waits")
    assert alone.is_alive()
    second.leave()
    alone.join()
    first.forget("installed")
    first.once("installed", lambda: installs.append("headgate"))
    assert installs == ["headgate"] * 2
    first.leave()
    assert calls() == ["up", "down"]


def test_a_cluster_that_cannot_start_is_tried_once_and_every_module_gets_the_reason(
    calls: Calls, tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    for sharing in (Sharing(tmp_path), Sharing(tmp_path)):
        with pytest.raises(CannotStart, match="no etcd"):
            sharing.use(alone=False)
        sharing.leave()
    assert calls() == ["up"]
