"""The network namespaces of pods, each with one address on the machine's bridge.

headgate and the programs of a pod keep its namespace by their open files and processes. So it has no name that could remain:
when headgate is killed, it lasts as long as a program of the pod, and the next headgate finds it by the program's process ID.
"""

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from headgate.envoy.node_ids import DEFAULT_USER
from headgate.redirection import iptables
from headgate.redirection.exclusions import Exclusions
from headgate.redirection.rules import RedirectionRules, rules
from headgate.standalone.network.netlink import index_of, netlink

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, clone(2)
_LOOPBACK_INDEX = 1  # the kernel gives the loopback device of a new namespace this number
_OWN = "/proc/thread-self/ns/net"
_NO_IPV6 = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
_LOWEST_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_LIBC = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


class PodPlace(NamedTuple):
    """The place of a pod in the network: its address, its device at the bridge, and the bridge's address and prefix length."""

    address: str
    device: str
    gateway: str
    prefix: int


class NetworkNamespace:
    """An open network namespace. It lasts until `close`, and as long as a process runs in it."""

    def __init__(self, file: int) -> None:
        self._file = file

    @property
    def path(self) -> str:
        """The path by which other programs of this user enter the namespace while it is open here."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def create_socket(self, family: int, type: int, protocol: int = 0) -> socket.socket:
        """Return a socket of this namespace. Raises OSError."""
        with _entered(self._file):
            return socket.socket(family, type, protocol)

    def close(self) -> None:
        """Release the namespace."""
        os.close(self._file)


def create_namespace(place: PodPlace, redirection: RedirectionRules | None) -> NetworkNamespace:
    """Create the namespace of a pod, with its device `eth0`. Call it in a thread: it takes about 0.2 s.

    `redirection` has the rules for its TCP connections, None without a sidecar. The device at the bridge is created with it,
    and is not yet connected. Raises OSError and RedirectionError.
    """
    home = os.open(_OWN, os.O_RDONLY)
    try:
        return NetworkNamespace(_in_new_namespace(lambda: _set_up(place, redirection, home)))
    finally:
        os.close(home)


def namespace_of(pid: int, address: str) -> NetworkNamespace | None:
    """Return the namespace of a process if it has this address; None if it has another one, or the process has exited."""
    try:
        file = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    except OSError:
        return None
    try:
        has_address = address in _in_thread(lambda: _addresses(file))
    except BaseException:
        os.close(file)
        raise
    if has_address:
        return NetworkNamespace(file)
    os.close(file)
    return None


def try_namespace(create_machine: Callable[[], None]) -> None:
    """Set up the network of a pod, and that of the machine by `create_machine`, in a namespace that ends at once.

    Raises OSError and RedirectionError.
    """

    def build() -> None:
        _set_sysctls()
        with netlink() as opened:
            opened.link("add", ifname="pod", kind="veth", peer={"ifname": "eth0"})
            opened.link("set", index=_LOOPBACK_INDEX, state="up")
        iptables.apply(rules(Exclusions(), group=DEFAULT_USER))
        create_machine()

    os.close(_in_new_namespace(build))


def _in_new_namespace(build: Callable[[], None]) -> int:
    """Create a namespace and set it up from inside; return its file."""

    def create() -> int:
        _call("unshare", _NEW_NETWORK)
        file = os.open(_OWN, os.O_RDONLY)
        try:
            build()
        except BaseException:
            os.close(file)
            raise
        return file

    return _in_thread(create)


def _set_up(place: PodPlace, redirection: RedirectionRules | None, home: int) -> None:
    _set_sysctls()
    with netlink() as opened:
        opened.link("set", index=_LOOPBACK_INDEX, state="up")
        opened.link("add", ifname="eth0", kind="veth", peer={"ifname": place.device, "net_ns_fd": home})
        device = index_of(opened, "eth0")
        opened.addr("add", index=device, address=place.address, prefixlen=place.prefix)
        opened.link("set", index=device, state="up")
        opened.route("add", dst="default", gateway=place.gateway)
    if redirection:
        iptables.apply(redirection)


def _set_sysctls() -> None:
    _LOWEST_PORT.write_text("0")  # as container runtimes do: programs of all users may listen on all ports
    if _NO_IPV6.exists():
        _NO_IPV6.write_text("1")  # only loopback has IPv6, else there would be connections that are not redirected


def _addresses(file: int) -> frozenset[str]:
    with _entered(file), netlink() as opened:
        return frozenset(str(entry.get("address")) for entry in opened.get_addr(family=socket.AF_INET))


def _in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread that ends with it, because it changes the thread's namespace."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run, name="network namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def _entered(file: int) -> Iterator[None]:
    """Move this thread into a namespace for the `with` block."""
    home = os.open(_OWN, os.O_RDONLY)
    try:
        _call("setns", file, _NEW_NETWORK)
        try:
            yield
        finally:
            _call("setns", home, _NEW_NETWORK)
    finally:
        os.close(home)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(_LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
