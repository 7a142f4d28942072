"""Where control groups of containers are made, and what their files contain; `tests/e2e/test_limits.py` has real ones."""

from fractions import Fraction
from pathlib import Path

import pytest

from headgate.control_groups import CONTROLLERS, ContainerLimits, GroupPlace, places, settings

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


def test_a_limit_of_0_is_none() -> None:
    assert settings(ContainerLimits(), GroupPlace(Path("/both"), BOTH, unified=True)) == {}
