"""The runtime directory: private, the same at each start, and removed when no process uses it."""

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
    """Yield an environment that puts runtime directories into a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="hg-run-", dir="/tmp") as directory:
        yield {"XDG_RUNTIME_DIR": directory}


def test_a_runtime_directory_is_short_private_and_the_same_at_each_start(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    directory = runtime_directory(deep, {})
    try:
        assert runtime_directory(deep, {}) == directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert len(str(directory)) <= 107 - 33
    finally:
        directory.rmdir()


def test_a_runtime_directory_is_below_xdg_runtime_dir_if_the_path_fits(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    assert runtime_directory(tmp_path, environ).parent == Path(environ["XDG_RUNTIME_DIR"])


def test_a_runtime_directory_that_other_users_can_write_is_rejected(environ: Mapping[str, str], tmp_path: Path) -> None:
    runtime_directory(tmp_path, environ).chmod(0o777)
    with pytest.raises(ProxyError, match="and have mode 0700"):
        runtime_directory(tmp_path, environ)


def test_a_symbolic_link_is_rejected(environ: Mapping[str, str], tmp_path: Path) -> None:
    directory = runtime_directory(tmp_path, environ)
    directory.rmdir()
    directory.symlink_to(tmp_path)
    with pytest.raises(ProxyError, match="and have mode 0700"):
        runtime_directory(tmp_path, environ)


def test_a_regular_exit_removes_the_runtime_directory(environ: Mapping[str, str], tmp_path: Path) -> None:
    with claimed(tmp_path, environ) as claim:
        (claim.directory / "a.sock").touch()
        assert (claim.directory / OWNER).read_text() == str(tmp_path)
        assert remove_unused(environ) == []
    assert not claim.directory.exists()


def test_the_directory_of_a_killed_headgate_is_removed_after_its_envoy_has_ended(
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
        assert select.select([child], [], [], 30)[0]  # wait until the process has exited
        os.close(child)
    assert directory in remove_unused(environ)
    assert not directory.exists()


def test_a_directory_without_an_owner_file_is_not_removed(environ: Mapping[str, str], tmp_path: Path) -> None:
    directory = runtime_directory(tmp_path, environ)
    assert remove_unused(environ) == []
    assert directory.is_dir()
