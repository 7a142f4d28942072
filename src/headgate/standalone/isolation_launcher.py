"""The program that executes the program of a container, in a mount and a network namespace of its own and as its user.

`isolation` starts it by its path, with `-I -S`, so it imports nothing but the standard library, and starts in about 20 ms.
Arguments: the number of the pipe for a failure, the isolation as JSON, and the container's command. It keeps its process ID
and its open files. A failure is written to the pipe as JSON (stage, errno, file, message); the pipe closes when the
container's program is executed.

A path that the machine does not have must not be created there. Instead the deepest directory that exists is covered by a
mirror, a tmpfs in which all of its entries are bind mounts of themselves, and the path is created in the mirror.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

_NEW_NAMESPACE, _NEW_USERS = 0x00020000, 0x10000000  # CLONE_NEWNS and CLONE_NEWUSER, clone(2)
_NEW_NETWORK, _NEW_NAMES = 0x40000000, 0x04000000  # CLONE_NEWNET and CLONE_NEWUTS
_OWNER = 0xB701  # NS_GET_USERNS, ioctl_ns(2)
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE = 1, 32, 4096, 16384  # mount(2)
_UNBINDABLE, _SLAVE = 1 << 17, 1 << 19
_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR, _NET_ADMIN = 47, 2, 4, 12  # prctl(2), capabilities(7)
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3, capget(2)
_DETACH = 2  # MNT_DETACH, umount2(2)
# A user namespace may not clear the flags nosuid, nodev, noexec, noatime, nodiratime and relatime of its mounts (user_namespaces(7)).
# statvfs has the same numbers, except that of relatime.
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048
_STATVFS_RELATIVE_TIME, _RELATIVE_TIME = 4096, 1 << 21
_LIBC = ctypes.CDLL(None, use_errno=True)


class FailedStage(Exception):
    """What the launcher could not do: `stage` is limits, network, mounts, user, directory or command."""

    def __init__(self, stage: str, error: OSError, message: str = "") -> None:
        super().__init__(stage)
        self.stage, self.error, self.message = stage, error, message

    def encoded(self) -> bytes:
        """Return the failure as JSON."""
        error = self.error
        return json.dumps([self.stage, error.errno or 0, str(error.filename or ""), self.message]).encode()


class Mounts:
    """The mounts of a new mount namespace. `staging` is an empty directory, needed for a mirror of the root directory."""

    def __init__(self, staging: str) -> None:
        self._staging = staging
        self._mirrors: set[int] = set()  # their device numbers
        self._volumes: list[str] = []  # where writable volumes are mounted

    def reveal(self, path: str) -> None:
        """Mirror the root directory if the path needs it. Call it before a source is opened: pivot_root detaches open files."""
        top = os.path.realpath(path).split("/")[1]
        if not os.path.exists(f"/{top}") and os.stat("/").st_dev not in self._mirrors:
            self._mirror("/")

    def add(self, mount: Mapping[str, Any], source: str) -> None:
        """Mount the file or directory `source` at `path`."""
        target = os.path.realpath(mount["path"])
        if not os.path.exists(target):
            self._create(target, directory=os.path.isdir(source))
        _call("mount", os.fsencode(source), os.fsencode(target), None, _BIND | _RECURSIVE, None)
        if mount.get("read_only"):
            flags = _BIND | _REMOUNT | _READ_ONLY | _flags(target)
            _call("mount", None, os.fsencode(target), None, flags, None)
        else:
            self._volumes.append(target)

    def _create(self, target: str, *, directory: bool) -> None:
        """Create the place for a mount where the machine does not see it: in a volume, or in a mirror."""
        parent = os.path.dirname(target)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        in_volume = any(parent == volume or parent.startswith(f"{volume}/") for volume in self._volumes)
        if not in_volume and os.stat(parent).st_dev not in self._mirrors:
            self._mirror(parent)
        os.makedirs(target if directory else os.path.dirname(target), exist_ok=True)
        if not directory:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _mirror(self, path: str) -> None:
        original = os.open(path, os.O_PATH | os.O_DIRECTORY)
        entries, status = sorted(os.listdir(path)), os.stat(path)
        mirror = self._staging if path == "/" else path
        mode = f"mode={stat.S_IMODE(status.st_mode):o}".encode()
        _call("mount", b"tmpfs", os.fsencode(mirror), b"tmpfs", 0, mode)
        with contextlib.suppress(OSError):  # a user namespace does not have this owner
            os.chown(mirror, status.st_uid, status.st_gid)
        # Otherwise the mount of the directory that contains the staging directory would contain the mirror.
        _call("mount", None, os.fsencode(mirror), None, _UNBINDABLE, None)
        for name in entries:
            _bind_entry(f"/proc/self/fd/{original}/{name}", f"{mirror}/{name}")
        os.close(original)
        if path == "/":
            os.chdir(mirror)
            _call("pivot_root", b".", b".")  # the old root is now mounted on top of the new one (pivot_root(2))
            _call("umount2", b".", _DETACH)
            os.chdir("/")
        self._mirrors.add(os.stat(path).st_dev)


def _bind_entry(source: str, target: str) -> None:
    """Make an entry of a directory visible in its mirror. An entry that is removed meanwhile is left out."""
    try:
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
            return
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        _call("mount", os.fsencode(source), os.fsencode(target), None, _BIND | _RECURSIVE, None)
    except FileNotFoundError:
        return


def _flags(path: str) -> int:
    """Return the flags that a mount must keep."""
    flags = os.statvfs(path).f_flag
    return (flags & _LOCKED_FLAGS) | (_RELATIVE_TIME if flags & _STATVFS_RELATIVE_TIME else 0)


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _new_mount_namespace() -> None:
    """Enter a new mount namespace; without the privilege, in a new user namespace with the same user."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_NAMESPACE)
    except PermissionError:
        _call("unshare", _NEW_USERS | _NEW_NAMESPACE)
        # A process without privileges may map its own group only if it gives up setgroups(2).
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    # Mounts of the machine are seen here, and mounts of this namespace are not seen by the machine.
    _call("mount", None, b"/", None, _RECURSIVE | _SLAVE, None)


def _join(pid: int) -> None:
    """Enter the namespaces of a process, unless this process is in them."""
    files = []
    for name, kind in (
        ("user", _NEW_USERS),
        ("net", _NEW_NETWORK),
        ("uts", _NEW_NAMES),
        ("mnt", _NEW_NAMESPACE),
    ):
        if os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"):
            files.append((os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind))
    for file, kind in files:
        _call("setns", file, kind)
        os.close(file)


def _enter_network(path: str, hostname: str) -> None:
    """Enter the network of the pod, and give the machine the name of the pod there.

    `headgate run` is not in the user namespace of a headgate without root, which owns the network, so it enters that one too.
    """
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            _call("setns", file, _NEW_NETWORK)
        except PermissionError:
            users = fcntl.ioctl(file, _OWNER)
            _call("setns", users, _NEW_USERS)
            os.close(users)
            _call("setns", file, _NEW_NETWORK)
        os.close(file)
        if hostname:
            _call("unshare", _NEW_NAMES)
            _call("sethostname", hostname.encode(), len(hostname.encode()))
    except OSError as error:
        raise FailedStage("network", error) from error


def _enter(isolation: Mapping[str, Any]) -> None:
    """Enter the control groups and namespaces of the container, or create the namespaces."""
    for group in isolation.get("control_groups", ()):
        try:
            with open(f"{group}/cgroup.procs", "w") as processes:
                processes.write("0")  # this process
        except OSError as error:
            error.filename = group
            raise FailedStage("limits", error) from error
    if isolation.get("network") and not isolation.get("join"):
        _enter_network(isolation["network"], isolation.get("hostname", ""))
    if pid := isolation.get("join"):
        try:
            _join(pid)
        except OSError as error:
            raise FailedStage("mounts", error, "the container's mounts") from error
    elif isolation.get("mounts"):
        try:
            _new_mount_namespace()
        except OSError as error:
            raise FailedStage("mounts", error, "a mount namespace") from error
        mask = os.umask(0o022)  # the user of the container must be able to enter the directories above its mounts
        _mount(isolation["mounts"], Mounts(isolation.get("staging", "")))
        os.umask(mask)


def _mount(given: Sequence[Mapping[str, Any]], mounts: Mounts) -> None:
    """Mount outer directories before the inner ones. Every source is opened first, because a mount may cover a later source."""
    ordered = sorted(given, key=lambda mount: mount["path"].rstrip("/").count("/"))
    sources = []
    for mount in ordered:
        with _naming(mount):
            mounts.reveal(mount["path"])
    for mount in ordered:
        with _naming(mount):
            sources.append(os.open(mount["source"], os.O_PATH))
    for mount, source in zip(ordered, sources, strict=True):
        with _naming(mount):
            mounts.add(mount, f"/proc/self/fd/{source}")
        os.close(source)


@contextlib.contextmanager
def _naming(mount: Mapping[str, Any]) -> Iterator[None]:
    """Name the mount in a failure of the `with` block."""
    try:
        yield
    except OSError as error:
        raise FailedStage("mounts", error, f"{mount['field']}: {mount['path']}") from error


def _change_user(isolation: Mapping[str, Any]) -> None:
    user, group, groups = isolation.get("user"), isolation.get("group"), isolation.get("groups")
    try:
        if user is not None:
            for output in (1, 2):  # else the user could not open /dev/stdout and /dev/stderr
                if not stat.S_ISCHR(os.fstat(output).st_mode):  # a device such as /dev/null belongs to the machine
                    os.fchown(output, user, -1)
        if groups is not None:
            os.setgroups(groups)
        if group is not None:
            os.setresgid(group, group, group)
        if user is not None:
            os.setresuid(user, user, user)
    except OSError as error:
        raise FailedStage("user", error) from error


def _drop_capabilities(*, marks_packets: bool) -> None:
    """Give the program none of the launcher's capabilities, except that for SO_MARK with `marks_packets`."""
    _LIBC.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    kept = 1 << _NET_ADMIN if marks_packets else 0
    if kept:
        _LIBC.prctl(_AMBIENT, _AMBIENT_RAISE, _NET_ADMIN, 0, 0)
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION), (ctypes.c_uint32 * 6)()
    if _LIBC.capget(header, sets) == 0:
        sets[2], sets[5] = sets[2] & kept, 0  # the inheritable ones, which files could give the program otherwise
        _LIBC.capset(header, sets)
    try:
        _call(
            "prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0
        )  # those of its file (setcap(8)) either, nor another user's (setuid)
    except OSError as error:
        raise FailedStage("user", error) from error


def _undo_startup() -> None:
    """Undo what Python changes when it starts and the program would inherit: ignored signals, and a locale (PEP 538)."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    with open("/proc/self/environ", "rb") as file:
        if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
            os.environ.pop("LC_CTYPE", None)


def _launch(isolation: Mapping[str, Any], command: list[str]) -> NoReturn:
    """Execute the command in the container. Raises FailedStage."""
    _undo_startup()  # before the user changes, because another user can't read /proc/self/environ
    try:
        current = os.getcwd()
    except FileNotFoundError:
        current = "/"
    _enter(isolation)
    directory = isolation["directory"]
    try:
        os.chdir(directory or (current if os.path.isdir(current) else "/"))
    except OSError as error:
        raise FailedStage("directory", error) from error
    _change_user(isolation)
    if isolation.get("drops_capabilities"):
        _drop_capabilities(marks_packets=bool(isolation.get("marks_packets")))
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's program
    except OSError as error:
        raise FailedStage("command", error) from error


def main() -> int:
    """Launch the container's program; return 127 after a failure."""
    pipe = int(sys.argv[1])
    os.set_inheritable(pipe, False)  # noqa: FBT003 - it has no keyword
    try:
        _launch(json.loads(sys.argv[2]), sys.argv[3:])
    except FailedStage as failure:
        os.write(pipe, failure.encoded())
        return 127


if __name__ == "__main__":
    sys.exit(main())
