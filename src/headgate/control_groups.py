"""Control groups (cgroups), by which the kernel limits the memory and the processor time of containers on one machine.

With version 1, a group is made in headgate's own group, so limits of headgate hold for its containers too. With version 2, a
group with processes contains no further group, so the new one is made beside it, if the group above has the controllers and headgate may
write to it: as root, or where systemd has delegated it to the user.

The kernel removes no group. Each directory of a container has a record of its groups, by which `headgate up` and `down` remove
them, after a `kill -9` too.
"""

import contextlib
import errno
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.atomic_file import read_json, write_private

RECORD = "control-groups"
CONTROLLERS = frozenset({"cpu", "memory"})
_PREFIX = "headgate-"  # of the names of all groups that headgate makes, and removes
_QUOTA = "cpu.cfs_quota_us"
_OF_SWAP = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes"})
_PERIOD_US = 100_000  # as Kubernetes
_LEAST_QUOTA_US = 1000  # the kernel accepts no smaller one
_ATTEMPTS, _PAUSE_S = 40, 0.05  # a group is busy until the kernel has cleaned up after its last process


class ContainerLimits(NamedTuple):
    """The limits of a container; 0 is none, as in Kubernetes. `cpu` is in processors, `memory` in bytes."""

    cpu: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)


class GroupPlace(NamedTuple):
    """A directory in which groups with these controllers can be made, or such a group. `unified` marks version 2."""

    directory: Path
    controllers: frozenset[str]
    unified: bool


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A group in the record of a container."""

    directory: str
    controllers: tuple[str, ...]
    unified: bool


def places(mounts: str, memberships: str) -> Iterator[GroupPlace]:
    """Yield the places for groups of this process, from the content of its `mountinfo` and its `cgroup` in /proc.

    The controllers of version 2 stand in a file of the place, and are not read here (proc_pid_mountinfo(5), cgroups(7)).
    """
    own: dict[frozenset[str], str] = {}  # the group by its controllers; version 2 has none
    for line in filter(
        None, memberships.split("\n")
    ):  # names may contain the other characters that end lines in Python
        _, names, path = line.split(":", 2)
        own[frozenset(filter(None, names.split(",")))] = path
    for line in mounts.split("\n"):
        fields, _, rest = line.partition(" - ")
        if rest.split(" ")[0] not in {"cgroup", "cgroup2"}:
            continue
        (root, mount), (kind, _, options) = fields.split(" ")[3:5], rest.split(" ")[:3]
        for controllers, path in own.items():
            inside = Path(mount) / Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path(mount)
            if kind == "cgroup2" and not controllers:
                yield GroupPlace(inside.parent if str(inside) != mount else inside, frozenset(), unified=True)
            elif kind == "cgroup" and controllers & CONTROLLERS and controllers <= set(options.split(",")):
                yield GroupPlace(inside, controllers & CONTROLLERS, unified=False)


def usable(process: Path = Path("/proc/self")) -> list[GroupPlace]:
    """Return the places where this process can limit containers."""
    try:
        files = [os.fsdecode((process / name).read_bytes()) for name in ("mountinfo", "cgroup")]
    except OSError:
        return []
    given = (_with_controllers(place) for place in places(*files))
    return [place for place in given if place.controllers and os.access(place.directory, os.W_OK)]


def limited() -> frozenset[str]:
    """Return the resources that this process can limit: `cpu`, `memory`."""
    return frozenset(controller for place in usable() for controller in place.controllers)


def settings(limits: ContainerLimits, place: GroupPlace) -> Mapping[str, str]:
    """Return the files of a group in a place with their content, in the order in which they are written.

    Bytes are rounded up, as in Kubernetes. Swap counts as memory. With version 2, all processes of a container that is out of memory end, as on a cluster.
    """
    files: dict[str, str] = {}
    if limits.memory and "memory" in place.controllers:
        amount = str(math.ceil(limits.memory))
        if place.unified:
            files |= {"memory.max": amount, "memory.swap.max": "0", "memory.oom.group": "1"}
        else:
            files |= {"memory.limit_in_bytes": amount, "memory.memsw.limit_in_bytes": amount}
    if limits.cpu and "cpu" in place.controllers:
        quota = max(int(limits.cpu * _PERIOD_US), _LEAST_QUOTA_US)
        if place.unified:
            files |= {"cpu.max": f"{quota} {_PERIOD_US}"}
        else:
            files |= {"cpu.cfs_period_us": str(_PERIOD_US), _QUOTA: str(quota)}
    return files


def create(name: str, limits: ContainerLimits, directory: Path) -> tuple[str, ...]:
    """Make the groups of a container that starts, or use those that it has; return their directories. Raises OSError.

    `directory` is that of the container, which gets the record. Without limits, or where none can be set, there is no group.
    """
    if not any(limits):
        return ()
    recorded = groups = _recorded(directory)
    if not groups or not all(group.controllers and group.directory.is_dir() for group in groups):
        places_with_limits = (place for place in usable() if settings(limits, place))
        groups = [place._replace(directory=place.directory / f"{_PREFIX}{name}") for place in places_with_limits]
        new = {group.directory for group in groups}
        _record([*groups, *(group for group in recorded if group.directory not in new)], directory)
    made: list[Path] = []
    try:
        for group in groups:
            with contextlib.suppress(FileExistsError):
                group.directory.mkdir()
                made.append(group.directory)
            _limit(group, limits)
    except OSError:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise
    return tuple(str(group.directory) for group in groups)


def existing(directory: Path) -> tuple[str, ...]:
    """Return the groups of a container, which its probes, hooks and commands enter too; `directory` is that of the container."""
    return tuple(str(group.directory) for group in _recorded(directory) if group.directory.is_dir())


def out_of_memory(directory: Path) -> int:
    """Return how many processes of a container the kernel has ended, because it was out of memory."""
    count = 0
    for group in _recorded(directory):
        file = group.directory / ("memory.events" if group.unified else "memory.oom_control")
        with contextlib.suppress(OSError):  # the group has no memory controller
            rows = dict(line.split() for line in file.read_text().splitlines())
            count += int(rows.get("oom_kill", "0"))
    return count


def remove(*pods: Path) -> list[Path]:
    """Remove the groups of all containers of pods, by the directories of the pods, with the processes that are left in them.

    Return the groups that remain. The record of a container stays until it has no group.
    """
    remaining: list[Path] = []
    for record in (record for pod in pods for record in pod.glob(f"*/{RECORD}") if record.is_file()):
        busy = [group.directory for group in _recorded(record.parent) if not _is_removed(group.directory)]
        if not busy:
            record.unlink(missing_ok=True)
        remaining += busy
    return remaining


def _with_controllers(place: GroupPlace) -> GroupPlace:
    if not place.unified:
        return place
    try:
        enabled = (place.directory / "cgroup.subtree_control").read_text().split()
    except OSError:
        return place
    return place._replace(controllers=CONTROLLERS.intersection(enabled))


def _recorded(directory: Path) -> list[GroupPlace]:
    """Return the recorded groups of a container. A record with another content must not remove other groups.

    Earlier versions of headgate recorded only directories. Such a group has no `controllers` here.
    """
    recorded = read_json(directory / RECORD, list[_Recorded | str]) or ()
    groups = [_group_at(Path(group)) if isinstance(group, str) else _group_of(group) for group in recorded]
    return [group for group in groups if group.directory.is_absolute() and group.directory.name.startswith(_PREFIX)]


def _group_of(recorded: _Recorded) -> GroupPlace:
    return GroupPlace(Path(recorded.directory), frozenset(recorded.controllers), unified=recorded.unified)


def _group_at(directory: Path) -> GroupPlace:
    return GroupPlace(directory, frozenset(), unified=(directory / "cgroup.controllers").exists())


def _record(groups: Sequence[GroupPlace], directory: Path) -> None:
    if groups:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = [
            _Recorded(
                directory=str(group.directory), controllers=tuple(sorted(group.controllers)), unified=group.unified
            )
            for group in groups
        ]
        write_private(directory / RECORD, msgspec.json.encode(written), durable=False)


def _limit(group: GroupPlace, limits: ContainerLimits) -> None:
    """Write the limits of a group. Raises OSError."""
    for file, text in settings(limits, group).items():
        if file in _OF_SWAP and not (group.directory / file).exists():
            continue  # this kernel does not count swap
        try:
            (group.directory / file).write_text(text)
        except OSError as error:
            # Version 1 accepts no higher quota than that of the group above, which then limits the container.
            if file != _QUOTA or error.errno != errno.EINVAL:
                raise


def _is_removed(group: Path) -> bool:
    """Remove a group with the groups below it, which a container can have made, and their processes; return whether it is gone."""
    for _ in range(_ATTEMPTS):
        deepest_first = [Path(directory) for directory, _, _ in os.walk(group, topdown=False)]
        for directory in deepest_first:
            with contextlib.suppress(OSError):
                directory.rmdir()
        if not os.path.lexists(group):
            return True
        _kill(deepest_first)
        time.sleep(_PAUSE_S)
    return False


def _kill(groups: Sequence[Path]) -> None:
    """Kill the processes of groups, of which the last one contains the preceding ones; never headgate itself."""
    pids: set[int] = set()
    for group in groups:
        with contextlib.suppress(OSError):
            pids.update(map(int, (group / "cgroup.procs").read_text().split()))
    kill = groups[-1] / "cgroup.kill"  # version 2, since Linux 5.14
    if os.getpid() not in pids and kill.exists():
        with contextlib.suppress(OSError):
            kill.write_text("1")
    for pid in pids - {
        0,
        os.getpid(),
    }:  # 0 stands for a process of another PID namespace, but for kill() for headgate's own group
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
