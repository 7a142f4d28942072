"""The machine's part of the pod network: a bridge, the addresses of Services, and the way to the outside.

The bridge `headgate<A>` has the network 10.A.0.0/16: Services have 10.A.0.0/17, which are addresses of the machine, and pods
10.A.128.0/17. Everything is bound to the bridge or has its name, so `remove_unused` finds what a killed headgate left. The
bridge's alias says whether the machine forwarded packets before.

Without root, all of this is in a network namespace of its own, the node, which ends with its last process. The `portal` connects it
with the machine's network.
"""

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.redirection.iptables import restore, run_program
from headgate.redirection.rules import DNS_PORT, LOOPBACK
from headgate.standalone.address_pool import FIRST_RANGE, LAST_RANGE, gateway_address, is_claimed, range_of
from headgate.standalone.network.namespaces import (
    NetworkNamespace,
    PodPlace,
    create_node,
    hardware_address,
    namespace_of,
)
from headgate.standalone.network.netlink import ensure, index_of, netlink
from headgate.standalone.network.netlink import remove as remove_present
from headgate.standalone.user_namespace import is_entered

_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_ENABLED_HERE = "headgate: ip_forward was 0"
"""The alias of a bridge whose headgate let the machine forward packets."""
_PREFIX = "headgate"  # of the names of bridges
_LOCAL_TABLE = 255  # RT_TABLE_LOCAL
_NETWORK, _SERVICES, _PODS = "10.{}.0.0/16", "10.{}.0.0/17", "10.{}.128.0/17"
_POD_PREFIX = 17
PORTAL_PORT = 15098
"""Where the portal listens in the node, for connections to the outside."""
T = TypeVar("T")


class MachineNetwork:
    """The pod network of one headgate, in range A. Its methods block for milliseconds; call them in a thread.

    `node` is the namespace that has it, None for that of the machine. With `is_new_node`, this headgate has created it.
    """

    def __init__(self, number: int, node: NetworkNamespace | None = None, *, is_new_node: bool = False) -> None:
        self.gateway = gateway_address(number)
        self.node = node
        self.is_new_node = is_new_node
        self.number = number
        self._bridge = bridge_name(number)

    def create(self) -> None:
        """Create the bridge, or complete that of a killed headgate. Raises OSError and RedirectionError."""
        self._run(self._create)

    def _run(self, work: Callable[[], T]) -> T:
        return self.node.run(work) if self.node else work()

    def _create(self) -> None:
        # The rules exist before the machine forwards the first packet.
        restore("iptables", _creation(self.number, is_node=self.node is not None))
        with netlink() as opened:
            ensure(opened.link, "add", ifname=self._bridge, kind="bridge")
            index = index_of(opened, self._bridge)
            ensure(opened.addr, "add", index=index, address=self.gateway, prefixlen=_POD_PREFIX)
            # A bridge without an address of its own takes the lowest of its devices: another one when a pod comes or goes,
            # and packets of all other pods, such as queries to the resolver, are lost until they notice.
            opened.link("set", index=index, address=hardware_address(self.gateway), state="up")
            services = _SERVICES.format(self.number)
            ensure(opened.route, "add", dst=services, oif=index, table=_LOCAL_TABLE, type="local", scope="host")
            if self.node:  # a route to the outside, so that connections there are redirected to the portal
                ensure(opened.route, "add", dst="0.0.0.0/0", family=socket.AF_INET, oif=index, prefsrc=self.gateway)
            if _FORWARDING.read_text().strip() == "0":
                opened.link("set", index=index, ifalias=_ENABLED_HERE)
                _FORWARDING.write_text("1")

    def remove(self) -> None:
        """Remove the bridge, the devices of pods at it, and the rules. Raises OSError and RedirectionError."""
        if self.node:
            self.node.close()
        else:
            remove(self.number)

    def contains(self, address: str) -> bool:
        """Return whether an address is one of the network: of a Service, of a pod, or the gateway's. Any text is allowed."""
        return range_of(address) == self.number and not address.startswith("127.")

    def place(self, address: str) -> PodPlace:
        """Return the place of the pod with this address."""
        _, second, third, fourth = address.split(".")
        return PodPlace(address, f"hg{second}-{third}-{fourth}", self.gateway, _POD_PREFIX)

    def connect(self, place: PodPlace) -> None:
        """Connect the device of a pod to the bridge. Raises OSError."""

        def connect() -> None:
            with netlink() as opened:
                index, bridge = index_of(opened, place.device), index_of(opened, self._bridge)
                opened.link("set", index=index, master=bridge, state="up")

        self._run(connect)

    def disconnect(self, place: PodPlace) -> None:
        """Remove the device of a pod, if it exists. Raises OSError."""

        def disconnect() -> None:
            with netlink() as opened:
                for index in opened.link_lookup(ifname=place.device):
                    remove_present(opened.link, "del", index=index)

        self._run(disconnect)

    def lend(self, address: str) -> None:
        """Give the machine the address of a pod that shares its network. Raises OSError."""

        def lend() -> None:
            with netlink() as opened:
                ensure(opened.addr, "add", index=index_of(opened, self._bridge), address=address, prefixlen=32)

        self._run(lend)

    def take_back(self, address: str) -> None:
        """Take from the machine what `lend` gave it. Raises OSError."""

        def take_back() -> None:
            with netlink() as opened:
                for index in opened.link_lookup(ifname=self._bridge):
                    remove_present(opened.addr, "del", index=index, address=address, prefixlen=32)

        self._run(take_back)

    def create_socket(self, kind: socket.SocketKind) -> socket.socket:
        """Return an IPv4 socket of the network. Raises OSError."""
        return self.node.create_socket(socket.AF_INET, kind) if self.node else socket.socket(socket.AF_INET, kind)

    def rejected(self) -> int:
        """Return how many UDP packets of a node to the outside were rejected. Raises RedirectionError.

        Other packets are left out: bridges report their multicast groups, and connections that have ended have last packets.
        """
        saved = self._run(lambda: run_program("iptables-save", "-c", "-t", "filter"))
        rules = tuple(f"-A {chain} ! -d {_NETWORK.format(self.number)} -p udp " for chain in _chains(self.number))
        counted = (line.partition(" ") for line in saved.splitlines())  # [PACKETS:BYTES] -A CHAIN ...
        return sum(int(counts[1:].partition(":")[0]) for counts, _, rule in counted if rule.startswith(rules))


def bridge_name(number: int) -> str:
    """Return the bridge name for a range."""
    return f"{_PREFIX}{number}"


def network_for(number: int, gateway_pid: int) -> MachineNetwork:
    """Return the network for a range: without root, in the node of the running gateway, else in a new one. Raises OSError."""
    if not is_entered():
        return MachineNetwork(number)
    if gateway_pid and (node := namespace_of(gateway_pid, gateway_address(number))):
        return MachineNetwork(number, node)
    return MachineNetwork(number, create_node(), is_new_node=True)


def firewall_rules(number: int, *, is_node: bool = False) -> dict[str, str]:
    """Return the rules by table, for iptables-restore.

    Pods reach the machine, each other and the outside. The outside reaches neither pods nor Services. With `is_node`, they reach the
    machine and the outside by the portal, over TCP only, and their DNS queries to other resolvers go to that of headgate.

    Pods do not reach the HTTP proxies of sidecars at the addresses that share this network: such a proxy uses the identity of its pod.
    """
    bridge, (chain, inbound) = bridge_name(number), _chains(number)
    network, pods, gateway = _NETWORK.format(number), _PODS.format(number), gateway_address(number)
    proxies = f"-A {inbound} -i {bridge} -d {pods} -p tcp -m tcp --dport {OUTBOUND_PORT} -j REJECT\n"
    if is_node:
        return {
            "filter": (
                f":{chain} - [0:0]\n:{inbound} - [0:0]\n"
                f"-I FORWARD -j {chain}\n"
                f"-A {chain} ! -d {network} -p udp -j REJECT\n"  # which `rejected` counts
                f"-A {chain} ! -d {network} -j REJECT\n"
                f"-I OUTPUT -j {inbound}\n"
                f"-I INPUT -j {inbound}\n"
                f"-A {inbound} -d {LOOPBACK[4]} -j RETURN\n"  # a redirected packet, whose device is still the bridge
                f"-A {inbound} ! -d {network} -p udp -j REJECT\n"
                f"-A {inbound} ! -d {network} -j REJECT\n"
                f"{proxies}"
            ),
            "nat": (
                f":{chain} - [0:0]\n"
                f"-I PREROUTING -j {chain}\n"
                f"-I OUTPUT -j {chain}\n"
                f"-A {chain} -i {bridge} -d {gateway}/32 -p tcp -m tcp ! --dport {DNS_PORT} -j REDIRECT --to-ports {PORTAL_PORT}\n"
                f"-A {chain} -d {network} -j RETURN\n"
                f"-A {chain} -p udp -m udp --dport {DNS_PORT} -j DNAT --to-destination {gateway}:{DNS_PORT}\n"
                f"-A {chain} -d {LOOPBACK[4]} -j RETURN\n"
                f"-A {chain} -p tcp -j REDIRECT --to-ports {PORTAL_PORT}\n"
            ),
        }
    return {
        "filter": (
            f":{chain} - [0:0]\n:{inbound} - [0:0]\n"
            f"-I INPUT -j {inbound}\n"
            f"-A {inbound} -i {bridge} -d {gateway}/32 -j ACCEPT\n"  # programs of the machine
            f"{proxies}"
            f"-A {inbound} -i {bridge} -j ACCEPT\n"
            f"-A {inbound} ! -i lo -d {network} -j DROP\n"
            f"-I FORWARD -j {chain}\n"
            f"-A {chain} -i {bridge} -j ACCEPT\n"
            f"-A {chain} -o {bridge} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
            f"-A {chain} -o {bridge} -j DROP\n"
        ),
        "nat": (f":{chain} - [0:0]\n-I POSTROUTING -j {chain}\n-A {chain} -s {pods} ! -o {bridge} -j MASQUERADE\n"),
    }


def used_ranges() -> frozenset[int]:
    """Return the ranges A whose 10.A.0.0/16 overlaps a route of this machine that is not headgate's own. Raises OSError."""
    with netlink() as opened:
        devices = {link["index"]: str(link.get("ifname")) for link in opened.get_links()}
        routes = [
            (ipaddress.ip_network(f"{route.get('dst')}/{route['dst_len']}"), devices.get(route.get("oif"), ""))
            for route in opened.get_routes(family=socket.AF_INET)
            if route["dst_len"]
        ]
    return frozenset(
        number
        for number in range(FIRST_RANGE, LAST_RANGE + 1)
        for network, device in routes
        if device != bridge_name(number) and network.overlaps(ipaddress.ip_network(_NETWORK.format(number)))
    )


def remove_unused(own: int | None = None, *, keeps_own: bool = False) -> list[str]:
    """Remove the networks whose headgate and proxies are gone; return their bridges' names.

    `own` is the range that the caller has claimed. Its network, of an earlier start, is removed unless `keeps_own`. Raises
    OSError and RedirectionError.
    """
    if os.geteuid():  # other users can create none
        return []
    unused = [number for number in _bridges() if not (keeps_own if number == own else is_claimed(number))]
    for number in unused:
        remove(number)
    return [bridge_name(number) for number in unused]


def remove(number: int) -> None:
    """Remove the network of a range. The last network restores whether the machine forwards packets.

    The devices are removed even if the rules can't be. Raises OSError and RedirectionError.
    """
    try:
        _remove_devices(number)
    finally:
        if steps := _removal(number):
            restore("iptables", steps)


def _remove_devices(number: int) -> None:
    remaining = [other for other in _bridges() if other != number]
    with netlink() as opened:
        for bridge in opened.link_lookup(ifname=bridge_name(number)):
            if opened.get_links(bridge)[0].get("ifalias") == _ENABLED_HERE:
                if remaining:
                    opened.link("set", index=index_of(opened, bridge_name(remaining[0])), ifalias=_ENABLED_HERE)
                else:
                    _FORWARDING.write_text("0")
            for link in opened.get_links():
                if link.get("master") == bridge:
                    remove_present(opened.link, "del", index=link["index"])
            remove_present(opened.link, "del", index=bridge)


def _bridges() -> list[int]:
    names = (name for _, name in socket.if_nameindex())  # `netlink` takes 0.1 s, and most starts have no bridge
    numbers = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
    return [int(number) for number in numbers if number.isdecimal()]


def _creation(number: int, *, is_node: bool) -> str:
    """Return the transactions that add a range's rules in place of those that a killed headgate left."""
    tables = []
    for table, text in firewall_rules(number, is_node=is_node).items():
        lines = text.splitlines()
        chains = [line for line in lines if line.startswith(":")]  # empties those that exist
        tables += [f"*{table}", *chains, *_jumps_removal(_saved(table), number), *lines[len(chains) :], "COMMIT", ""]
    return "\n".join(tables)


def _removal(number: int) -> str:
    """Return the transactions that remove the rules of a range, however often they are there; empty if there are none."""
    tables = []
    for table in firewall_rules(number):
        saved = _saved(table)
        present = [chain for chain in _chains(number) if any(line.startswith(f":{chain} ") for line in saved)]
        if present:
            deletions = (step for chain in present for step in (f"-F {chain}", f"-X {chain}"))
            tables += [f"*{table}", *_jumps_removal(saved, number), *deletions, "COMMIT", ""]
    return "\n".join(tables)


def _jumps_removal(saved: Iterable[str], number: int) -> list[str]:
    jumps = (line for line in saved if line.startswith("-A ") and line.split(" -j ")[-1] in _chains(number))
    return ["-D" + line.removeprefix("-A") for line in jumps]


def _saved(table: str) -> list[str]:
    return run_program("iptables-save", "-t", table).splitlines()


def _chains(number: int) -> tuple[str, str]:
    """Return the names of the chains for packets that the machine forwards, and for those that it receives."""
    return f"HEADGATE-{number}", f"HEADGATE-{number}-IN"
