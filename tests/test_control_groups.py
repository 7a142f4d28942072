"""Where control groups of containers are made, and what their files contain; `tests/e2e/test_limits.py` has real ones."""

import errno
import os
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
    """Return a directory in which groups are made, in place of a hierarchy of the kernel."""
    place = GroupPlace(tmp_path / "cgroup", BOTH, unified=True)
    place.directory.mkdir()
    monkeypatch.setattr(control_groups, "usable", lambda: [place])
    monkeypatch.setattr(control_groups, "_ATTEMPTS", 1)
    return place.directory


LIMITS = ContainerLimits(cpu=Fraction(1))


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
    hierarchy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = hierarchy / "headgate-app"
    write, refused = Path.write_text, OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def write_text(path: Path, text: str) -> int:
        if path.name == "cpu.cfs_quota_us":
            raise refused
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_text)
    monkeypatch.setattr(Path, "exists", lambda path: path.name == "cpu.cfs_quota_us")
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


@pytest.mark.parametrize("record", [b"", b"\xff", b"{}", b'["/"]', b'["headgate-a"]'])
def test_a_record_with_another_content_removes_no_group(tmp_path: Path, record: bytes) -> None:
    container = tmp_path / "pod" / "app"
    container.mkdir(parents=True)
    (container / RECORD).write_bytes(record)
    assert existing(container) == ()
    assert remove(container.parent) == []


def test_a_record_has_the_directories_of_the_groups(hierarchy: Path, tmp_path: Path) -> None:
    groups = create("app", LIMITS, tmp_path / "pod" / "app")
    assert msgspec.json.decode((tmp_path / "pod" / "app" / RECORD).read_bytes()) == list(groups)
