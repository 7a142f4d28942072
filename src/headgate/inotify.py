"""The kernel's limit of inotify instances, with which Envoy and headgate watch files.

At the limit, Envoy aborts with SIGABRT, and watchfiles raises a RuntimeError.
"""

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ENVOY_INSTANCES = 4
"""The number of inotify instances of an Envoy on a cluster. It watches its token and its roots. Worker threads need none.

The limit is one of each user of a node, so sidecars have different ones (`admission.proxy_users`).
"""
_LIMITS = ("fs.inotify.max_user_instances", "user.max_inotify_instances")


def message_from_envoy(log: Iterable[str], machine: str) -> str:
    """Return a message about the limit if Envoy reports it in its log, else an empty text."""
    return limit_message(machine) if any("assert failure: inotify_fd_ >= 0" in line for line in log) else ""


def message_from_watchfiles(error: RuntimeError, machine: str) -> str:
    """Return a message about the limit if an error of watchfiles is about it, else the error's text."""
    return limit_message(machine) if "os error 24" in str(error) else str(error)  # 24 is EMFILE


def missing_instances(count: int, machine: str) -> str:
    """Return a message about the limit if this process can't create `count` instances, else an empty text."""
    create = ctypes.CDLL(None).inotify_init1
    created = [create(os.O_CLOEXEC) for _ in range(count)]
    for descriptor in created:
        if descriptor >= 0:
            os.close(descriptor)
    return "" if min(created) >= 0 else limit_message(machine)


def limit_message(machine: str) -> str:
    """Say which sysctl limits inotify instances, its value, and how to raise it. `machine` is where: `the node`."""
    limits = {}
    for name in _LIMITS:
        with suppress(OSError, ValueError):
            limits[name] = int(Path("/proc/sys", *name.split(".")).read_text())
    # `user` has the limit of the user namespace, and the same value as `fs` outside of user namespaces
    name = min(limits, key=lambda name: limits[name], default=_LIMITS[0])
    value = f" ({limits[name]})" if name in limits else ""
    suggested = max(1024, 4 * limits.get(name, 0))
    return (
        f"the limit {name}{value} of inotify instances is reached; "
        f"raise it as root on {machine}: sysctl -w {name}={suggested}"
    )
