"""The user namespace in which a headgate without root creates the networks of pods.

In it, headgate keeps its user and group, and has all capabilities over the network namespaces that it creates there. It has none over
the machine, whose network it still uses. A program that it starts has no capabilities, except in `capable_programs`.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_NEW_USERS = 0x10000000  # CLONE_NEWUSER, clone(2)
_NET_ADMIN, _NET_RAW, _SYS_CHROOT, _SYS_PTRACE, _SYS_ADMIN = 12, 13, 18, 19, 21  # capabilities(7)
_GRANTED = (_NET_ADMIN, _NET_RAW, _SYS_CHROOT, _SYS_PTRACE, _SYS_ADMIN)
"""For iptables, and for the launcher of isolated programs: setns(2) needs CAP_SYS_ADMIN, CAP_SYS_CHROOT for mounts, and CAP_SYS_PTRACE
to open a namespace in the files of headgate, which has further capabilities."""
_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR = 47, 2, 4  # prctl(2)
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3, capget(2)
_LIBC = ctypes.CDLL(None, use_errno=True)
_ANSWER_BYTES = 10_000
_SETTINGS = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu
    ("kernel.unprivileged_userns_clone", "0", "1"),  # Debian
    ("user.max_user_namespaces", "0", "10000"),
)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def create() -> None:
    """Enter a new user namespace. Call it before the first thread starts. Raises OSError."""
    _use_own_lock()
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_USERS)
    # A process without privileges may map its own group only if it gives up setgroups(2).
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)


def join(pid: int) -> None:
    """Enter the user namespace of a process, unless this process is in it. Call it before the first thread starts. Raises OSError."""
    path = Path(f"/proc/{pid}/ns/user")
    if path.samefile("/proc/self/ns/user"):
        return
    _use_own_lock()
    file = os.open(path, os.O_RDONLY)
    try:
        _call("setns", file, _NEW_USERS)
    finally:
        os.close(file)


def _use_own_lock() -> None:
    """Let iptables-legacy lock a file that this user can open: other users can't change these tables."""
    os.environ.setdefault("XTABLES_LOCKFILE", os.devnull)


def attempt(missing: Callable[[], str]) -> str:
    """Return the result of `missing` in a user namespace that ends at once; why there can't be one, if there can't.

    Call it before the first thread starts.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(missing, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read(_ANSWER_BYTES).decode(errors="replace")
    os.waitpid(child, 0)
    return text.removeprefix("+") if text else "the attempt in a user namespace ended unexpectedly"


def _answer(missing: Callable[[], str], pipe: int) -> None:
    """Write the result of an attempt into a pipe, with the prefix `+`, and end this process."""
    try:
        try:
            create()
            text = f"+{missing()}"
        except OSError as error:
            text = f"only root can create network namespaces, because this machine forbids unprivileged user namespaces ({error}); {remedy()}"
        os.write(pipe, text.encode())
    finally:
        os._exit(0)


def remedy(settings: Path = Path("/proc/sys")) -> str:
    """Return how to allow user namespaces, by the setting that forbids them."""
    for name, forbidden, allowed in _SETTINGS:
        path = settings / name.replace(".", "/")
        if path.exists() and path.read_text().strip() == forbidden:
            return f"run headgate as root, or allow them: sysctl -w {name}={allowed}"
    return "run headgate as root"


def is_entered() -> bool:
    """Return whether this process is in such a namespace."""
    return bool(os.geteuid()) and bool(_sets()[0].effective >> _SYS_ADMIN & 1)


@contextlib.contextmanager
def capable_programs() -> Iterator[None]:
    """Let programs that this thread starts in the `with` block have capabilities over the networks of pods, like those of root."""
    if not is_entered():
        yield
        return
    sets = _sets()
    for number in _GRANTED:
        sets[0].inheritable |= 1 << number
    _call("capset", ctypes.byref(_Header(_VERSION, 0)), sets)
    for number in _GRANTED:
        _call("prctl", _AMBIENT, _AMBIENT_RAISE, number, 0, 0)
    try:
        yield
    finally:
        _call("prctl", _AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)


def _sets() -> "ctypes.Array[_Sets]":
    """Return the capabilities of this thread: 0 to 31 in the first element."""
    sets = (_Sets * 2)()
    _call("capget", ctypes.byref(_Header(_VERSION, 0)), sets)
    return sets


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(_LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
