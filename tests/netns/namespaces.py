"""Network namespaces for pods, joined by a bridge in a namespace of its own; the machine's network is not changed.

A process keeps each namespace alive until its standard input closes, so no namespace remains, however the tests end. A
socket belongs to the namespace in which it was created. So clients and servers run in the test's process, on its
event loop, with sockets created in the pods.
"""

import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SOL_IPV6, ORIGINAL_DST = 41, 80
CAPTURE_BYTES = 32 << 20
HOLD = "ip link set lo up && echo here && exec cat"
SO_RCVBUFFORCE = 33
APPLICATION, PROXY = 1000, 1337  # user IDs
NETWORK, NETWORK6 = "10.77.0", "fd77::"
_LIBC = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Return why network namespaces can't be created here; empty if they can."""
    for program in ("ip", "iptables-save", "nsenter", "unshare", "setpriv"):
        if not shutil.which(program):
            return f"needs {program}"
    if os.geteuid():
        return "needs root to create network namespaces"
    tried = ["unshare", "--net", "iptables-save", "-t", "nat"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"needs network namespaces with iptables: {done.stderr.strip()}" if done.returncode else ""


class Namespace:
    """One network namespace with loopback."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout
        assert self._holder.stdout.readline() == b"here\n"
        self.pid = self._holder.pid
        self.path = f"/proc/{self.pid}/ns/net"
        self._there = os.open(self.path, os.O_RDONLY)

    def close(self) -> None:
        """Remove the namespace."""
        os.close(self._there)
        self._holder.communicate()

    def command(self, *command: str | Path) -> list[str]:
        """Return a command that runs in this namespace."""
        return ["nsenter", f"--net={self.path}", *map(str, command)]

    def try_run(self, *command: str | Path, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a program in this namespace; return the completed process."""
        return subprocess.run(self.command(*command), capture_output=True, text=True, input=stdin, check=False)

    def run(self, *command: str | Path, stdin: str | None = None) -> str:
        """Run a program in this namespace; return its output."""
        done = self.try_run(*command, stdin=stdin)
        assert not done.returncode, f"{command} failed: {done.stderr}"
        return done.stdout

    def ip(self, *steps: str) -> None:
        """Run commands of `ip`."""
        self.run("ip", "-batch", "-", stdin="\n".join(steps) + "\n")

    @contextmanager
    def entered(self, user: int = 0) -> Iterator[None]:
        """Make this thread create its sockets in this namespace, as a user."""
        home = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        try:
            _enter(self._there)
            _LIBC.setfsuid(user)  # this thread's user becomes the owner of the socket
            yield
        finally:
            _LIBC.setfsuid(0)
            _enter(home)
            os.close(home)

    def open_socket(self, family: socket.AddressFamily = socket.AF_INET, *, user: int = APPLICATION) -> socket.socket:
        """Return a non-blocking TCP socket of this namespace, owned by a user."""
        with self.entered(user):
            made = socket.socket(family)
        made.setblocking(False)
        return made

    def listening(self, port: int, address: str = "0.0.0.0") -> socket.socket:
        """Return a listening socket of this namespace."""
        made = self.open_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(64)
        return made


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class PodNamespace(Namespace):
    """A namespace with an address on the bridge and a default route; `port` is its network device at the bridge."""

    def __init__(self, bridge: "Bridge", number: int) -> None:
        super().__init__()
        self.address = f"{NETWORK}.{number}"
        self.address6 = f"{NETWORK6}{number:x}"
        self.port = f"p{number}"
        self._bridge = bridge
        bridge.ip(
            f"link add {self.port} type veth peer name eth0 netns {self.pid}",
            f"link set {self.port} master bridge up",
        )
        self.ip(
            "link set eth0 up",
            f"addr add {self.address}/24 dev eth0",
            f"route add default via {NETWORK}.1",
        )
        if has_ipv6():
            self.ip(f"addr add {self.address6}/64 dev eth0 nodad", f"route add default via {NETWORK6}1")

    def capture(self) -> "Capture":
        """Return a capture of the traffic between this pod and the bridge."""
        return Capture(self._bridge, self.port)


def has_ipv6() -> bool:
    """Return whether the kernel has IPv6."""
    return Path("/proc/net/if_inet6").exists()


class Bridge(Namespace):
    """A bridge in a separate namespace; `pod` connects a new namespace to the bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.ip("link add bridge type bridge", "link set bridge up", f"addr add {NETWORK}.1/24 dev bridge")
        if has_ipv6():
            self.ip(f"addr add {NETWORK6}1/64 dev bridge nodad")
        self._numbers = itertools.count(10)
        self.pods: list[PodNamespace] = []

    def pod(self) -> PodNamespace:
        """Connect a new namespace."""
        self.pods.append(PodNamespace(self, next(self._numbers)))
        return self.pods[-1]

    def close(self) -> None:
        """Remove the namespaces of all pods and of the bridge."""
        for pod in self.pods:
            pod.close()
        super().close()


class Capture:
    """A capture of all frames at one network device since its creation; use it as a context manager."""

    def __init__(self, namespace: Namespace, device: str) -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self._socket.bind((device, 0))
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, CAPTURE_BYTES)

    def __enter__(self) -> Self:
        self.frames()  # drop frames of other devices that arrived before the bind
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def frames(self) -> Sequence[bytes]:
        """Return the frames since the last call."""
        frames: list[bytes] = []
        while True:
            try:
                frames.append(self._socket.recv(1 << 17))
            except BlockingIOError:
                return frames


def original(connection: socket.socket) -> tuple[str, int]:
    """Return the original destination of a redirected connection."""
    try:
        if connection.family == socket.AF_INET6:
            raw = connection.getsockopt(SOL_IPV6, ORIGINAL_DST, 28)
            return socket.inet_ntop(socket.AF_INET6, raw[8:24]), int.from_bytes(raw[2:4], "big")
        raw = connection.getsockopt(socket.SOL_IP, ORIGINAL_DST, 16)
        return socket.inet_ntoa(raw[4:8]), int.from_bytes(raw[2:4], "big")
    except FileNotFoundError:  # no connection of this namespace was ever redirected
        host, port, *_ = connection.getsockname()
        return host, port
