"""The network namespaces of pods, each with one address on the machine's bridge.

headgate and the programs of a pod keep its namespace by their open files and processes. So it has no name that could remain:
when headgate is killed, it lasts as long as a program of the pod, and the next headgate finds it by the program's process ID.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from headgate.envoy.node_ids import DEFAULT_USER, PROXY_MARK
from headgate.redirection import iptables
from headgate.redirection.exclusions import Exclusions
from headgate.redirection.rules import RedirectionRules, rules
from headgate.standalone.network.netlink import index_of, netlink
from headgate.standalone.user_namespace import capable_programs, is_entered

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


def hardware_address(address: str) -> str:
    """Return the hardware address (MAC) of the device with an IPv4 address.

    It never changes, so what neighbors remember of the address stays true when a later pod gets it. A random one would be
    wrong for up to a minute.
    """
    return ":".join(f"{byte:02x}" for byte in b"\x0a\x58" + socket.inet_aton(address))  # 0a: administered locally


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
        return self.run(lambda: socket.socket(family, type, protocol))

    def run(self, work: Callable[[], T]) -> T:
        """Run a function inside the namespace."""

        def enter() -> T:
            _call("setns", self._file, _NEW_NETWORK)
            return work()

        return _in_thread(enter)

    def duplicate(self) -> int:
        """Return a further file of the namespace, to be closed."""
        return os.dup(self._file)

    def close(self) -> None:
        """Release the namespace."""
        os.close(self._file)


def create_namespace(
    place: PodPlace, redirection: RedirectionRules | None, node: NetworkNamespace | None = None
) -> NetworkNamespace:
    """Create the namespace of a pod, with its device `eth0`. Call it in a thread: it takes about 0.2 s.

    `redirection` has the rules for its TCP connections, None without a sidecar. The device at the bridge is created with it in
    the namespace `node`, by default that of this thread, and is not yet connected. Raises OSError and RedirectionError.
    """
    home = node.duplicate() if node else os.open(_OWN, os.O_RDONLY)
    try:
        return NetworkNamespace(_in_new_namespace(lambda: _set_up(place, redirection, home)))
    finally:
        os.close(home)


def create_node() -> NetworkNamespace:
    """Create the namespace that has the machine's part of the network in a user namespace. Raises OSError."""

    def build() -> None:
        _set_sysctls()
        for devices in ("all", "default"):
            # What it rejects has come from the bridge and would leave by it, of which the kernel informs the pod instead.
            Path(f"/proc/sys/net/ipv4/conf/{devices}/send_redirects").write_text("0")
        with netlink() as opened:
            opened.link("set", index=_LOOPBACK_INDEX, state="up")

    return NetworkNamespace(_in_new_namespace(build))


def namespace_of(pid: int, address: str) -> NetworkNamespace | None:
    """Return the namespace of a process if it has this address; None if it has another one, or the process has exited."""
    try:
        namespace = NetworkNamespace(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY))
    except OSError:
        return None
    try:
        has_address = address in namespace.run(_addresses)
    except BaseException as error:
        namespace.close()
        if isinstance(error, PermissionError):  # it belongs to another user namespace
            return None
        raise
    if has_address:
        return namespace
    namespace.close()
    return None


def is_in(namespace: NetworkNamespace | None, pid: int) -> bool:
    """Return whether a process is in a network namespace, None for that of headgate; False when it has exited."""
    try:
        return Path(namespace.path if namespace else _OWN).samefile(f"/proc/{pid}/ns/net")
    except PermissionError:  # it is in another user namespace, or a program that no user may inspect
        return namespace is None
    except OSError:
        return False


def pod_rules(exclusions: Exclusions, proxy_group: int) -> RedirectionRules:
    """Return the rules for a pod whose sidecar has a group; in a user namespace, which has only one, its packets have a mark."""
    if not is_entered():
        return rules(exclusions, group=proxy_group)
    # It has only one user too: all programs of the pod would be excluded, or none.
    return rules(exclusions._replace(excluded_users=()), mark=PROXY_MARK)


def try_namespace(create_machine: Callable[[], None]) -> None:
    """Set up the network of a pod, and that of the machine by `create_machine`, in a namespace that ends at once.

    Raises OSError and RedirectionError.
    """

    def build() -> None:
        _set_sysctls()
        with netlink() as opened:
            opened.link("add", ifname="pod", kind="veth", peer={"ifname": "eth0"})
            opened.link("set", index=_LOOPBACK_INDEX, state="up")
        iptables.apply(pod_rules(Exclusions(), DEFAULT_USER))
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
        hardware, peer = hardware_address(place.address), {"ifname": place.device, "net_ns_fd": home}
        opened.link("add", ifname="eth0", kind="veth", address=hardware, peer=peer)
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


def _addresses() -> frozenset[str]:
    with netlink() as opened:
        return frozenset(str(entry.get("address")) for entry in opened.get_addr(family=socket.AF_INET))


def _in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread that ends with it, because it changes the thread's namespace."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            with capable_programs():
                results.append(work())
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run, name="network namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(_LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
