"""Open and enter the network namespace of a pod on this node, from a process in the node's PID namespace.

Container runtimes put the processes of a pod into cgroups with the pod's uid in their names: `podUID`, or with systemd
`kubepods-burstable-podUID.slice`, which has `_` in place of `-`. A pod that may write to its own cgroup can make cgroups
with any names below it, so only the first uid in a path counts.
"""

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from headgate.errors import HeadgateError

PROC = Path("/proc")
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_START_TIME = 19  # the index of the start time in /proc/PID/stat, after the name of the program (proc_pid_stat(5))
_POD_CGROUP = re.compile(r"pod([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\.slice)?(?:/|$)")


class NamespaceError(HeadgateError):
    """The network namespace of a pod can't be opened or entered; the message says why."""


@contextlib.contextmanager
def pod_namespace(uid: str, proc: Path = PROC) -> Iterator[int]:
    """Yield a file descriptor of the network namespace of the pod with this uid. Raises NamespaceError.

    It is that of the pod's first process: later ones are the application's, which may have made other namespaces. The
    namespaces of the node and of this process do not count. Runtimes may have processes in the pod's cgroups that are in the
    node's namespace, where the rules would redirect the connections of the node.
    """
    excluded = {_identity(name, proc) for name in ("1", "self")}
    for pid in first_processes(uid, proc):
        try:
            namespace = _open(pid, uid, proc)
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended
        except OSError as error:
            raise _refusal(str(pid), error) from error
        try:
            if os.fstat(namespace).st_ino not in excluded:
                yield namespace
                return
        finally:
            os.close(namespace)
    raise NamespaceError(f"no process of the pod {uid} has a network namespace of the pod's own")


def first_processes(uid: str, proc: Path = PROC) -> list[int]:
    """Return the processes in the cgroups of the pod with this uid, the oldest one first."""
    started: list[tuple[int, int]] = []
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
            if is_of_pod((process / "cgroup").read_text(), uid):
                stat = (process / "stat").read_text()
                started.append((int(stat.rpartition(")")[2].split()[_START_TIME]), int(process.name)))
    return [pid for _, pid in sorted(started)]


def is_of_pod(cgroups: str, uid: str) -> bool:
    """Return whether a process belongs to a pod; `cgroups` is the content of its /proc/PID/cgroup."""
    first = (_POD_CGROUP.search(line) for line in cgroups.replace("_", "-").splitlines())
    return {cgroup[1] for cgroup in first if cgroup} == {uid}


def enter(namespace: int) -> None:
    """Move the calling thread into a network namespace. Raises NamespaceError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, _CLONE_NEWNET):
        reason = os.strerror(ctypes.get_errno())
        raise NamespaceError(f"the network namespace can't be entered: {reason}. This needs the capability SYS_ADMIN")


def _identity(process: str, proc: Path) -> int:
    """Return the inode of the network namespace of a process. Raises NamespaceError."""
    try:
        return (proc / process / "ns/net").stat().st_ino
    except OSError as error:
        raise _refusal(process, error) from error


def _refusal(process: str, error: OSError) -> NamespaceError:
    return NamespaceError(
        f"the network namespace of the process {process} can't be opened: {error.strerror}. The node agent needs hostPID and"
        " the capability SYS_PTRACE, and AppArmor must not confine it"
    )


def _open(pid: int, uid: str, proc: Path) -> int:
    """Open the namespace of a process that is still the pod's: another process may have got its PID."""
    with contextlib.ExitStack() as opened:
        directory = os.open(proc / str(pid), os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, directory)
        with contextlib.ExitStack() as unverified:
            namespace = os.open("ns/net", os.O_RDONLY, dir_fd=directory)
            unverified.callback(os.close, namespace)
            with os.fdopen(os.open("cgroup", os.O_RDONLY, dir_fd=directory)) as cgroups:
                if not is_of_pod(cgroups.read(), uid):
                    raise FileNotFoundError
            unverified.pop_all()
        return namespace
