"""The directory of a headgate's sockets: private, the same each time, and gone when all that used it is dead."""

import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headgate.errors import ProxyError
from headgate.standalone.runtime_directory import OWNER, claimed, remove_unused, runtime_directory

KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from headgate.standalone.runtime_directory import claimed

with claimed(Path(sys.argv[1]), os.environ) as claim:
    child = subprocess.Popen(["sleep", "60"], pass_fds=[claim.lock], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(claim.directory, child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def environ() -> Iterator[Mapping[str, str]]:
    """An environment whose runtime directories are nobody else's."""
    with tempfile.TemporaryDirectory(prefix="hg-run-", dir="/tmp") as directory:
        yield {"XDG_RUNTIME_DIR": directory}


def test_it_is_short_private_and_the_same_each_time(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    directory = runtime_directory(deep, {})
    try:
        assert runtime_directory(deep, {}) == directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert len(str(directory)) <= 107 - 33
    finally:
        directory.rmdir()


def test_it_is_in_the_users_runtime_directory_when_that_fits(environ: Mapping[str, str], tmp_path: Path) -> None:
    assert runtime_directory(tmp_path, environ).parent == Path(environ["XDG_RUNTIME_DIR"])


def test_one_that_others_can_write_is_refused(environ: Mapping[str, str], tmp_path: Path) -> None:
    runtime_directory(tmp_path, environ).chmod(0o777)
    with pytest.raises(ProxyError, match="only you can open"):
        runtime_directory(tmp_path, environ)


def test_a_link_is_refused(environ: Mapping[str, str], tmp_path: Path) -> None:
    directory = runtime_directory(tmp_path, environ)
    directory.rmdir()
    directory.symlink_to(tmp_path)
    with pytest.raises(ProxyError, match="only you can open"):
        runtime_directory(tmp_path, environ)


def test_an_orderly_end_removes_it(environ: Mapping[str, str], tmp_path: Path) -> None:
    with claimed(tmp_path, environ) as claim:
        (claim.directory / "a.sock").touch()
        assert (claim.directory / OWNER).read_text() == str(tmp_path)
        assert remove_unused(environ) == []
    assert not claim.directory.exists()


def test_what_a_killed_headgate_left_stays_while_its_envoy_lives_and_goes_with_the_next_start(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False, env=environ
    )
    name, pid = done.stdout.split()
    child, directory = os.pidfd_open(int(pid)), Path(name)
    try:
        assert remove_unused(environ) == []
    finally:
        os.kill(int(pid), signal.SIGKILL)
        assert select.select([child], [], [], 30)[0]  # it has ended
        os.close(child)
    assert directory in remove_unused(environ)
    assert not directory.exists()


def test_a_directory_without_an_owner_is_left_alone(environ: Mapping[str, str], tmp_path: Path) -> None:
    directory = runtime_directory(tmp_path, environ)
    assert remove_unused(environ) == []
    assert directory.is_dir()
