"""The machine's part of the pods' network; `tests/e2e/test_pod_networks.py` has it with pods."""

import contextlib
import ctypes
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import pytest
from tests.netns.namespaces import CLONE_NEWNET, missing
from tests.waiting import until
from tests.wire import DEADLINE_S

from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.redirection import iptables
from headgate.redirection.iptables import RedirectionError
from headgate.standalone.address_pool import claim_range
from headgate.standalone.network import choice
from headgate.standalone.network.machine_network import MachineNetwork, firewall_rules, remove_unused
from headgate.standalone.network.namespaces import NetworkNamespace, PodPlace, create_namespace, create_node
from headgate.standalone.network.netlink import index_of, netlink

T = TypeVar("T")
in_kernel = pytest.mark.skipif(bool(missing()), reason=missing() or "network namespaces are to be had")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def on_another_machine(work: Callable[[], T]) -> T:
    """Run a function in a thread with a new network namespace in place of the machine's."""

    def run() -> T:
        assert ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
        return work()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


def devices() -> list[str]:
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    return [line.partition(":")[0].strip() for line in lines]


@in_kernel
def test_a_start_without_networks_of_pods_removes_that_of_its_own_range() -> None:
    def start() -> None:
        FORWARDING.write_text("0")
        before = devices()
        number, guard = claim_range()
        with guard:
            MachineNetwork(number).create()
            assert remove_unused(number, keeps_own=True) == []
            assert FORWARDING.read_text() == "1\n"
            assert remove_unused(number) == [f"headgate{number}"]
        assert devices() == before
        assert FORWARDING.read_text() == "0\n"

    on_another_machine(start)


@in_kernel
def test_a_start_keeps_the_network_of_another_headgate() -> None:
    def start() -> list[str]:
        number, guard = claim_range()
        with guard:
            MachineNetwork(number).create()
            return remove_unused(number + 1)

    assert on_another_machine(start) == []


@in_kernel
def test_the_namespace_of_a_pod_is_joined_to_that_of_the_thread_which_creates_it() -> None:
    def start() -> list[str]:
        machine = MachineNetwork(80)
        machine.create()
        namespace = create_namespace(machine.place("10.80.128.4"), None)
        try:
            return devices()
        finally:
            namespace.close()

    assert "hg80-128-4" in on_another_machine(start)


@in_kernel
def test_a_packet_of_a_pod_arrives_after_another_pod_has_gone() -> None:
    """Nothing sends it again. Programs resolve names by such packets, and wait 5 s before they try again."""

    def start() -> None:
        machine = MachineNetwork(80)
        machine.create()
        with _joined(machine, machine.place("10.80.128.4")) as namespace:
            client = namespace.create_socket(socket.AF_INET, socket.SOCK_DGRAM)
            server = _receiver(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), machine.gateway)
            with client, server:
                lowest = "02:00:00:00:00:01"  # the kernel prefers the lowest address for the bridge
                with _joined(machine, machine.place("10.80.128.5"), bridge_side=lowest):
                    _send(client, server)
                _send(client, server)

    on_another_machine(start)


@in_kernel
def test_a_packet_to_a_pod_arrives_after_another_pod_had_its_address() -> None:
    def start() -> None:
        machine = MachineNetwork(80)
        machine.create()
        place, remaining = machine.place("10.80.128.4"), machine.place("10.80.128.5")
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with client, _joined(machine, remaining):  # a bridge without pods forgets its neighbors
            for _ in range(2):
                with _joined(machine, place) as namespace:
                    server = namespace.create_socket(socket.AF_INET, socket.SOCK_DGRAM)
                    with _receiver(server, place.address):
                        _send(client, server)

    on_another_machine(start)


@in_kernel
@pytest.mark.parametrize("has_node", [False, True])
def test_a_pod_does_not_reach_the_http_proxy_of_a_sidecar_in_the_machines_network(has_node: bool) -> None:
    """Its clients would use the identity of another pod."""

    def start() -> None:
        machine = MachineNetwork(80, create_node() if has_node else None)
        machine.create()
        lent, place = "10.80.128.5", machine.place("10.80.128.4")
        machine.lend(lent)
        namespace = create_namespace(place, None, machine.node)
        machine.connect(place)
        try:
            for port, is_reached in ((8080, True), (OUTBOUND_PORT, False)):
                with (
                    machine.create_socket(socket.SOCK_STREAM) as server,
                    namespace.create_socket(socket.AF_INET, socket.SOCK_STREAM) as client,
                    nullcontext() if is_reached else pytest.raises(ConnectionRefusedError),
                ):
                    server.bind((lent, port))
                    server.listen()
                    client.settimeout(DEADLINE_S)
                    client.connect((lent, port))
        finally:
            namespace.close()
            if machine.node:
                machine.remove()

    on_another_machine(start)


@contextlib.contextmanager
def _joined(machine: MachineNetwork, place: PodPlace, bridge_side: str = "") -> Iterator[NetworkNamespace]:
    """Give a pod its network; `bridge_side` is the hardware address of its device at the bridge."""
    namespace = create_namespace(place, None)
    try:
        if bridge_side:
            with netlink() as opened:
                opened.link("set", index=index_of(opened, place.device), address=bridge_side)
        machine.connect(place)
        until(lambda: _forwards(place.device), f"packets to {place.address}")
        yield namespace
    finally:
        machine.disconnect(place)
        namespace.close()


def _forwards(device: str) -> bool:
    """Return whether the bridge sends packets to a device: a few milliseconds later than it is connected."""
    with netlink() as opened:
        return bool(opened.get_links(index_of(opened, device))[0].get("operstate") == "UP")


def _receiver(server: socket.socket, address: str) -> socket.socket:
    server.bind((address, 0))
    server.settimeout(DEADLINE_S)
    return server


def _send(client: socket.socket, server: socket.socket) -> None:
    """Send a packet, and wait until it arrives."""
    client.sendto(b"query", server.getsockname())
    assert server.recv(100) == b"query"


@in_kernel
def test_routes_and_listeners_that_leave_no_place_for_the_network_are_named() -> None:
    def try_machine() -> None:
        assert choice.missing() == ""
        with socket.create_server(("0.0.0.0", 53)):
            assert "port 53: Address already in use; stop the program" in choice.missing()
        with netlink() as opened:
            opened.link("set", index=1, state="up")
            opened.route("add", dst="10.0.0.0/8", oif=1)
        assert "routes of this machine overlap all ranges" in choice.missing()

    on_another_machine(try_machine)


@in_kernel
def test_the_network_is_created_again_and_removed_without_rules_that_remain() -> None:
    def start() -> None:
        before = devices()
        machine = MachineNetwork(80)
        for _ in range(2):
            machine.create()
        rules = iptables.run_program("iptables-save").splitlines()
        assert sorted(rule for rule in rules if rule.endswith(("-j HEADGATE-80", "-j HEADGATE-80-IN"))) == [
            "-A FORWARD -j HEADGATE-80",
            "-A INPUT -j HEADGATE-80-IN",
            "-A POSTROUTING -j HEADGATE-80",
        ]
        machine.remove()
        assert devices() == before
        assert "HEADGATE" not in iptables.run_program("iptables-save")

    on_another_machine(start)


@in_kernel
def test_the_devices_are_removed_even_without_iptables(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        before = devices()
        machine = MachineNetwork(80)
        machine.create()
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setattr(iptables, "SYSTEM_PROGRAMS", "")
        with pytest.raises(RedirectionError, match="install the package iptables"):
            machine.remove()
        assert devices() == before

    on_another_machine(start)


def test_the_outside_reaches_no_pod_and_pods_reach_the_outside_by_the_machines_address() -> None:
    rules = firewall_rules(80)
    *_, last = rules["filter"].splitlines()
    assert last == "-A HEADGATE-80 -o headgate80 -j DROP"
    assert "-A HEADGATE-80 -s 10.80.128.0/17 ! -o headgate80 -j MASQUERADE" in rules["nat"].splitlines()


def test_the_device_of_a_pod_has_a_name_that_the_kernel_accepts() -> None:
    place = MachineNetwork(126).place("10.126.255.253")
    assert place.device == "hg126-255-253"
    assert len(place.device) <= 15  # IFNAMSIZ without the null character
    assert place.gateway == "10.126.255.254"
