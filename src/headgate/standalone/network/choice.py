"""The choice of `headgate up --network`: whether pods get networks of their own on this machine."""

import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Literal

from headgate.errors import HeadgateError
from headgate.option import parse_collector
from headgate.redirection.rules import DNS_PORT
from headgate.standalone import user_namespace
from headgate.standalone.address_pool import ALL_RANGES, FIRST_RANGE, OVERLAPPING, PodNetworking
from headgate.standalone.network.machine_network import MachineNetwork, used_ranges
from headgate.standalone.network.namespaces import create_node, try_namespace

NetworkOption = Literal["host", "pod", "auto"]

log = logging.getLogger(__name__)


def enter_user_namespace(option: NetworkOption, gateway_pid: int) -> str:
    """Enter a user namespace if the option demands networks of pods, and this user is not root; return why that is not possible.

    With `gateway_pid`, of the gateway of a killed headgate, enter its namespace. Call it before the first thread starts.
    """
    if option == "host" or not os.geteuid():
        return ""
    if gateway_pid:
        with contextlib.suppress(OSError):  # it has exited meanwhile
            user_namespace.join(gateway_pid)
    if user_namespace.is_entered():
        return ""
    if fault := user_namespace.attempt(missing):
        return fault
    try:
        user_namespace.create()
    except OSError as error:
        return f"headgate can't enter a user namespace: {error}"
    return ""


def choose_network(option: NetworkOption, fault: str = "") -> PodNetworking:
    """Return whether pods share the machine's network or have networks of their own, and log the choice.

    `fault` is that of `enter_user_namespace`. Raises HeadgateError if the machine does not allow the networks that the option demands.
    """
    if option == "host":
        return "host"
    fault = fault or ("" if user_namespace.is_entered() else missing())  # there it was tried before
    if fault and option == "pod":
        raise HeadgateError(f"pods can't have networks of their own here: {fault}; or start with --network host")
    if fault:
        log.warning("Pods share the machine's network (--network auto): %s", fault)
        return "host"
    way = (
        "; without root, they are in a user namespace, and this machine reaches 10.A.x.y as 127.A.x.y"
        if user_namespace.is_entered()
        else ""
    )
    log.warning(
        "Pods have networks of their own (--network %s): programs listen on the ports of their manifests%s", option, way
    )
    return "pod"


def unreachable(collectors: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each collector, by its option, on the machine's loopback: sidecars in networks of pods can't reach it."""
    for option, text in collectors.items():
        collector = parse_collector(text)
        if collector and (collector.host == "localhost" or collector.host.startswith("127.")):
            yield (
                f"{option} {text}: sidecars in the networks of pods can't reach the machine's loopback; let the collector listen on "
                "an address of the machine"
            )


def missing() -> str:
    """Return why this machine allows no networks of pods, and what to do; empty if it allows them."""
    if os.geteuid() and not user_namespace.is_entered():
        return "only root can create network namespaces; run headgate as root"
    try:
        if used_ranges() >= ALL_RANGES:
            return OVERLAPPING
        if user_namespace.is_entered():
            try_namespace(MachineNetwork(FIRST_RANGE, create_node()).create)
            return ""
        try_namespace(MachineNetwork(FIRST_RANGE).create)
    except (OSError, HeadgateError) as error:
        return f"a network namespace can't be set up: {error}"
    return _port_fault()


def _port_fault() -> str:
    """Return why no resolver can listen on port 53 of an address."""
    # Each process has an address of its own, so only programs that listen on all addresses are in the way.
    address = str(ipaddress.IPv4Address("127.1.0.0") + os.getpid() % (1 << 16))
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as tried:
            try:
                tried.bind((address, DNS_PORT))
            except OSError as error:
                return (
                    f"the resolver of the pods can't listen on port {DNS_PORT}: {error.strerror}; stop the program that listens "
                    f"on all addresses (`ss -lnp 'sport = :{DNS_PORT}'`)"
                )
    return ""
