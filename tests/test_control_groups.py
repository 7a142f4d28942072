"""Where control groups of containers are made, and what their files contain; `tests/e2e/test_limits.py` has real ones."""

import errno
import os
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from headgate import control_groups
from headgate.control_groups import (
    CONTROLLERS,
    RECORD,
    ContainerLimits,
    GroupPlace,
    create,
    existing,
    places,
    remove,
    settings,
)

MEMORY, CPU, BOTH = frozenset({"memory"}), frozenset({"cpu"}), CONTROLLERS
V1_MOUNTS = """\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
40 31 0:40 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
USER = "/user.slice/user-1000.slice/user@1000.service/app.slice"


def test_with_version_1_groups_are_made_in_that_of_headgate() -> None:
    own = "8:pids:/\n4:memory:/session/7\n1:cpu,cpuacct:/\n0::/\n"
    assert [place for place in places(V1_MOUNTS, own) if place.controllers] == [
        GroupPlace(Path("/sys/fs/cgroup/cpu,cpuacct"), CPU, unified=False),
        GroupPlace(Path("/sys/fs/cgroup/memory/session/7"), MEMORY, unified=False),
    ]


def test_in_a_container_with_version_1_the_mount_is_the_group_of_headgate() -> None:
    mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert [*places(mounts, "4:memory:/docker/abc\n")] == [
        GroupPlace(Path("/sys/fs/cgroup/memory"), MEMORY, unified=False)
    ]


def test_mounts_of_other_file_systems_may_have_any_content() -> None:
    foreign = "50 31 0:50 / /a\fb\x85 rw - tmpfs  rw\n51 31 0:51 / /\udce9 rw - tmpfs\n"
    nameless = "35 31 0:32 / /memory rw shared:7 - cgroup  rw,memory\n"
    assert [*places(foreign + nameless, "4:memory:/a\x85\n")] == [
        GroupPlace(Path("/memory/a\x85"), MEMORY, unified=False)
    ]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (f"{USER}/terminal.scope", f"/sys/fs/cgroup{USER}"),
        ("/system.slice/headgate.service", "/sys/fs/cgroup/system.slice"),
        ("/", "/sys/fs/cgroup"),
    ],
    ids=["a user's scope", "a service", "the root"],
)
def test_with_version_2_groups_are_made_beside_that_of_headgate(own: str, expected: str) -> None:
    assert [*places(V2_MOUNTS, f"0::{own}\n")] == [GroupPlace(Path(expected), frozenset(), unified=True)]


def test_the_files_of_version_1_have_the_limits() -> None:
    limits = ContainerLimits(cpu=Fraction("0.25"), memory=Fraction(64 << 20))
    assert settings(limits, GroupPlace(Path("/memory"), MEMORY, unified=False)) == {
        "memory.limit_in_bytes": "67108864",
        "memory.memsw.limit_in_bytes": "67108864",
    }
    assert settings(limits, GroupPlace(Path("/cpu"), CPU, unified=False)) == {
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "25000",
    }


def test_the_files_of_version_2_have_the_limits() -> None:
    place = GroupPlace(Path("/both"), BOTH, unified=True)
    assert settings(ContainerLimits(cpu=Fraction(2), memory=Fraction(64 << 20)), place) == {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "200000 100000",
    }
    assert settings(ContainerLimits(cpu=Fraction("0.001")), place) == {"cpu.max": "1000 100000"}  # the kernel's least


def test_a_fraction_of_a_byte_is_rounded_up() -> None:
    place = GroupPlace(Path("/both"), BOTH, unified=True)
    assert settings(ContainerLimits(memory=Fraction("64.5")), place)["memory.max"] == "65"


def test_a_limit_of_0_is_none() -> None:
    assert settings(ContainerLimits(), GroupPlace(Path("/both"), BOTH, unified=True)) == {}


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in which groups are made, in place of a hierarchy of the kernel: without files, which can't be removed."""
    place = GroupPlace(tmp_path / "cgroup", BOTH, unified=True)
    place.directory.mkdir()
    monkeypatch.setattr(control_groups, "usable", lambda: [place])
    monkeypatch.setattr(control_groups, "_ATTEMPTS", 1)
    monkeypatch.setattr(control_groups, "_limit", lambda _group, _limits: None)
    return place.directory


class KernelGroups:
    """Directories with the files of control groups of version 2, as the kernel makes them: one file tree in place of /sys and /proc.

    `files` has the files of each new group. A group is removed with its files, and a process is in the group whose `cgroup.procs` it is in.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: Sequence[str]) -> None:
        self.mount, self.process, self._files = root / "cgroup", root / "proc", files
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        (self.mount / own.lstrip("/")).mkdir(parents=True)
        self.process.mkdir()
        monkeypatch.setattr(os, "mkdir", self._make)
        monkeypatch.setattr(os, "rmdir", self._remove)
        (self.process / "mountinfo").write_text(
            f"30 23 0:26 / {self.mount} rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
        )
        (self.process / "cgroup").write_text(f"0::{own}\n")
        usable = control_groups.usable
        monkeypatch.setattr(control_groups, "usable", lambda: usable(self.process))

    def delegate(self, group: str, controllers: str) -> Path:
        """Enable controllers for the groups below a group, as systemd does; return its directory."""
        directory = self.mount / group.lstrip("/")
        (directory / "cgroup.subtree_control").write_text(f"{controllers}\n")
        return directory

    def _make(self, path: Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        if path.parent.is_relative_to(self.mount):
            enabled = (path.parent / "cgroup.subtree_control").read_text().split()
            for name in ("cgroup.procs", "cgroup.subtree_control", *self._files):
                if name.startswith("cgroup.") or name.partition(".")[0] in enabled:
                    (path / name).touch()

    def _remove(self, path: Path) -> None:
        if path.is_relative_to(self.mount) and not (path / "cgroup.procs").read_text():
            for file in [*path.iterdir()]:
                if file.is_file():
                    file.unlink()
        self._rmdir(path)


FILES = ("cpu.max", "cpu.stat", "memory.max", "memory.swap.max", "memory.oom.group", "memory.events", "cgroup.kill")
OWN = "/app.slice/headgate.scope"


def contents(group: Path) -> dict[str, str]:
    """Return the files of a group that have a content."""
    return {file.name: text for file in group.iterdir() if file.is_file() and (text := file.read_text())}


def test_a_group_of_version_2_has_its_limits_and_ends_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KernelGroups(tmp_path, monkeypatch, OWN, FILES)
    above = kernel.delegate("/app.slice", "cpu memory pids")
    assert control_groups.usable() == [GroupPlace(above, BOTH, unified=True)]
    container = tmp_path / "pod" / "app"
    (group,) = map(Path, create("app", ContainerLimits(cpu=Fraction(1, 2), memory=Fraction(64 << 20)), container))
    assert group == above / "headgate-app"
    limits = {
        "cpu.max": "50000 100000",
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }
    assert contents(group) == limits
    (group / "memory.events").write_text("low 0\nmax 5\noom 2\noom_kill 3\noom_group_kill 1\n")
    assert control_groups.out_of_memory(container) == 3
    (group / "cgroup.procs").write_text("4711\n")
    killed: list[int] = []

    def kill(pid: int, _signal: int) -> None:
        killed.append(pid)
        (group / "cgroup.procs").write_text("")

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert remove(container.parent) == []
    assert (killed, group.exists(), (container / RECORD).exists()) == ([4711], False, False)


@pytest.mark.parametrize(("swap", "expected"), [("memory.swap.max", "0"), ("memory.other", None)])
def test_a_kernel_that_does_not_count_swap_limits_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: str, expected: str | None
) -> None:
    kernel = KernelGroups(tmp_path, monkeypatch, OWN, ("memory.max", "memory.oom.group", swap))
    kernel.delegate("/app.slice", "memory")
    (group,) = map(Path, create("app", ContainerLimits(memory=Fraction(4096)), tmp_path / "pod" / "app"))
    assert (contents(group)["memory.max"], contents(group).get("memory.swap.max")) == ("4096", expected)


def test_only_delegated_controllers_limit_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KernelGroups(tmp_path, monkeypatch, OWN, FILES)
    above = kernel.delegate("/app.slice", "memory pids")
    container = tmp_path / "pod" / "app"
    assert control_groups.limited() == MEMORY
    assert create("busy", ContainerLimits(cpu=Fraction(1)), container) == ()
    (group,) = map(Path, create("app", ContainerLimits(cpu=Fraction(1), memory=Fraction(4096)), container))
    assert contents(group).keys() == {"memory.max", "memory.swap.max", "memory.oom.group"}
    kernel.delegate("/app.slice", "")
    assert control_groups.usable() == []
    assert existing(container) == (str(above / "headgate-app"),)  # the record names it after a restart too


def test_a_missing_file_of_a_limit_is_an_error_and_leaves_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the container would start without the limit, and no Event would say so."""
    kernel = KernelGroups(tmp_path, monkeypatch, OWN, ())
    above = kernel.delegate("/app.slice", "cpu")
    write = Path.write_text

    def write_text(path: Path, text: str) -> int:
        if path.name == "cpu.max":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(FileNotFoundError):
        create("app", ContainerLimits(cpu=Fraction(1)), tmp_path / "pod" / "app")
    assert not (above / "headgate-app").exists()


LIMITS = ContainerLimits(cpu=Fraction(1))
ROOT = b'[{"directory":"/","controllers":["cpu"],"unified":true}]'


def test_a_container_keeps_its_groups_when_headgate_starts_in_another_group(
    hierarchy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = tmp_path / "pod" / "app"
    groups = create("app", LIMITS, container)
    assert groups == existing(container) == (str(hierarchy / "headgate-app"),)
    other = GroupPlace(tmp_path / "other", BOTH, unified=True)
    other.directory.mkdir()
    monkeypatch.setattr(control_groups, "usable", lambda: [other])
    assert create("app", LIMITS, container) == groups
    Path(*groups).rmdir()
    assert create("app", LIMITS, container) == existing(container) == (str(other.directory / "headgate-app"),)
    Path(*groups).mkdir()  # as if its removal had failed
    assert remove(container.parent) == []
    assert [*hierarchy.iterdir(), *other.directory.iterdir()] == []


def test_a_quota_above_that_of_headgate_is_left_out_and_other_errors_leave_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = GroupPlace(tmp_path / "cgroup", CPU, unified=False)
    place.directory.mkdir()
    monkeypatch.setattr(control_groups, "usable", lambda: [place])
    group = place.directory / "headgate-app"
    write, refused = Path.write_text, OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def write_text(path: Path, text: str) -> int:
        if path.name == "cpu.cfs_quota_us":
            raise refused
        return write(path, text) if path.name == RECORD else 0

    monkeypatch.setattr(Path, "write_text", write_text)
    assert create("app", LIMITS, tmp_path / "pod" / "app") == (str(group),)
    group.rmdir()
    refused.errno = errno.EACCES
    with pytest.raises(OSError, match="Invalid argument"):
        create("app", LIMITS, tmp_path / "pod" / "app")
    assert existing(tmp_path / "pod" / "app") == ()


def test_groups_are_removed_with_those_below_them_and_what_remains_is_returned_and_recorded(
    hierarchy: Path, tmp_path: Path
) -> None:
    container = tmp_path / "pod" / "app"
    (group,) = map(Path, create("app", LIMITS, container))
    (group / "docker" / "1").mkdir(parents=True)
    (group / "docker" / "cgroup.procs").write_text("")  # a directory with a file can't be removed, unlike a group
    assert remove(container.parent) == [group]
    assert (existing(container), [*(group / "docker").iterdir()]) == (
        (str(group),),
        [group / "docker" / "cgroup.procs"],
    )
    (group / "docker" / "cgroup.procs").unlink()
    assert remove(container.parent) == []
    assert not (container / RECORD).exists()


def test_the_processes_of_a_group_are_killed_but_headgate_and_processes_without_a_number(
    hierarchy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container, killed = tmp_path / "pod" / "app", []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    (group,) = map(Path, create("app", LIMITS, container))
    (group / "cgroup.procs").write_text(f"0\n{os.getpid()}\n4711\n")
    (group / "cgroup.kill").touch()
    assert remove(container.parent) == [group]
    assert killed == [4711]
    assert (group / "cgroup.kill").read_text() == ""  # it would end headgate too
    (group / "cgroup.procs").write_text("0\n")
    assert remove(container.parent) == [group]
    assert (killed, (group / "cgroup.kill").read_text()) == ([4711], "1")


@pytest.mark.parametrize(
    "record", [b"", b"\xff", b"{}", b'["/"]', b'[{"directory":"headgate-a","controllers":[],"unified":true}]', ROOT]
)
def test_a_record_with_another_content_removes_no_group(tmp_path: Path, record: bytes) -> None:
    container = tmp_path / "pod" / "app"
    container.mkdir(parents=True)
    (container / RECORD).write_bytes(record)
    assert existing(container) == ()
    assert remove(container.parent) == []


def test_a_record_has_the_groups_with_their_version(hierarchy: Path, tmp_path: Path) -> None:
    (group,) = create("app", LIMITS, tmp_path / "pod" / "app")
    assert msgspec.json.decode((tmp_path / "pod" / "app" / RECORD).read_bytes()) == [
        {"directory": group, "controllers": ["cpu", "memory"], "unified": True}
    ]


def test_groups_in_a_record_of_an_earlier_version_are_used_and_removed(hierarchy: Path, tmp_path: Path) -> None:
    """It has only directories. After an update, `headgate up` finds such records of containers that run."""
    container, group = tmp_path / "pod" / "app", hierarchy / "headgate-app"
    container.mkdir(parents=True)
    (container / RECORD).write_bytes(msgspec.json.encode([str(group)]))
    group.mkdir()
    (group / "cgroup.controllers").touch()
    (group / "memory.events").write_text("oom_kill 2\n")
    assert existing(container) == (str(group),)
    assert control_groups.out_of_memory(container) == 2
    for file in group.iterdir():
        file.unlink()  # the kernel removes them with the group
    assert remove(container.parent) == []
    assert (group.exists(), (container / RECORD).exists()) == (False, False)


def test_a_container_of_an_earlier_version_starts_again_with_its_limits(hierarchy: Path, tmp_path: Path) -> None:
    container, group = tmp_path / "pod" / "app", hierarchy / "headgate-app"
    container.mkdir(parents=True)
    (container / RECORD).write_bytes(msgspec.json.encode([str(group)]))
    group.mkdir()
    assert create("app", LIMITS, container) == (str(group),)
    assert msgspec.json.decode((container / RECORD).read_bytes()) == [
        {"directory": str(group), "controllers": ["cpu", "memory"], "unified": True}
    ]
