"""Control groups (cgroups), by which the kernel limits the memory and the processor time of containers on one machine.

With version 1, a group is made in headgate's own group, so limits of headgate hold for its containers too. With version 2, a
group with processes contains no further group, so the new one is made beside it, if the group above has the controllers and headgate may
write to it: as root, or where systemd has delegated it to the user.

The kernel removes no group. Each directory of a container has a record of its groups, by which `headgate up` and `down` remove
them, after a `kill -9` too.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

RECORD = "control-groups"
CONTROLLERS = frozenset({"cpu", "memory"})
_PERIOD_US = 100_000  # as Kubernetes
_LEAST_QUOTA_US = 1000  # the kernel accepts no smaller one
_ATTEMPTS, _PAUSE_S = 40, 0.05  # a group is busy until the kernel has cleaned up after its last process


class ContainerLimits(NamedTuple):
    """The limits of a container; 0 is none, as in Kubernetes. `cpu` is in processors, `memory` in bytes."""

    cpu: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)


class GroupPlace(NamedTuple):
    """A directory in which groups with these controllers can be made. `unified` marks version 2."""

    directory: Path
    controllers: frozenset[str]
    unified: bool


def places(mounts: str, memberships: str) -> Iterator[GroupPlace]:
    """Yield the places for groups of this process, from the content of its `mountinfo` and its `cgroup` in /proc.

    The controllers of version 2 stand in a file of the place, and are not read here (proc_pid_mountinfo(5), cgroups(7)).
    """
    own: dict[frozenset[str], str] = {}  # the group by its controllers; version 2 has none
    for line in memberships.splitlines():
        _, names, path = line.split(":", 2)
        own[frozenset(filter(None, names.split(",")))] = path
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        (root, mount), (kind, _, options) = fields.split()[3:5], rest.split()[:3]
        for controllers, path in own.items():
            inside = Path(mount) / Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path(mount)
            if kind == "cgroup2" and not controllers:
                yield GroupPlace(inside.parent if str(inside) != mount else inside, frozenset(), unified=True)
            elif kind == "cgroup" and controllers & CONTROLLERS and controllers <= set(options.split(",")):
                yield GroupPlace(inside, controllers & CONTROLLERS, unified=False)


def usable() -> list[GroupPlace]:
    """Return the places where this process can limit containers."""
    try:
        files = [Path("/proc/self", name).read_text() for name in ("mountinfo", "cgroup")]
    except OSError:
        return []
    given = (_with_controllers(place) for place in places(*files))
    return [place for place in given if place.controllers and os.access(place.directory, os.W_OK)]


def limited() -> frozenset[str]:
    """Return the resources that this process can limit: `cpu`, `memory`."""
    return frozenset(controller for place in usable() for controller in place.controllers)


def settings(limits: ContainerLimits, place: GroupPlace) -> Mapping[str, str]:
    """Return the files of a group in a place with their content, in the order in which they are written.

    Swap counts as memory. With version 2, all processes of a container that is out of memory end, as on a cluster.
    """
    files: dict[str, str] = {}
    if limits.memory and "memory" in place.controllers:
        amount = str(int(limits.memory))
        if place.unified:
            files |= {"memory.max": amount, "memory.swap.max": "0", "memory.oom.group": "1"}
        else:
            files |= {"memory.limit_in_bytes": amount, "memory.memsw.limit_in_bytes": amount}
    if limits.cpu and "cpu" in place.controllers:
        quota = max(int(limits.cpu * _PERIOD_US), _LEAST_QUOTA_US)
        if place.unified:
            files |= {"cpu.max": f"{quota} {_PERIOD_US}"}
        else:
            files |= {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
    return files


def create(name: str, limits: ContainerLimits, directory: Path) -> tuple[str, ...]:
    """Make the groups of a container, or set those that exist; return their directories. Raises OSError.

    `directory` is that of the container, which gets the record. Without limits, or where none can be set, there is no group.
    """
    if not any(limits):
        return ()
    given = [(place, files) for place in usable() if (files := settings(limits, place))]
    groups = [place.directory / f"headgate-{name}" for place, _ in given]
    if not groups:
        return ()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / RECORD).write_text("\n".join(map(str, groups)))
    for group, (_, files) in zip(groups, given, strict=True):
        group.mkdir(exist_ok=True)
        for file, text in files.items():
            if (group / file).exists():  # a kernel may count no swap
                (group / file).write_text(text)
    return tuple(map(str, groups))


def out_of_memory(directory: Path) -> int:
    """Return how many processes of a container the kernel has ended, because it was out of memory."""
    count = 0
    for group in _recorded(directory):
        for file in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                rows = dict(line.split() for line in (group / file).read_text().splitlines())
                count += int(rows.get("oom_kill", "0"))
    return count


def remove(*pods: Path) -> None:
    """Remove the groups of all containers of pods, by the directories of the pods, with the processes that are left in them."""
    for record in (record for pod in pods for record in pod.glob(f"*/{RECORD}") if record.is_file()):
        for group in _recorded(record.parent):
            _remove(group)
        record.unlink(missing_ok=True)


def _with_controllers(place: GroupPlace) -> GroupPlace:
    if not place.unified:
        return place
    try:
        enabled = (place.directory / "cgroup.subtree_control").read_text().split()
    except OSError:
        return place
    return place._replace(controllers=CONTROLLERS.intersection(enabled))


def _recorded(directory: Path) -> list[Path]:
    try:
        return [Path(line) for line in (directory / RECORD).read_text().splitlines()]
    except OSError:
        return []


def _remove(group: Path) -> None:
    for _ in range(_ATTEMPTS):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            with contextlib.suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(_PAUSE_S)
        else:
            return
