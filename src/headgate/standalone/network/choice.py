"""The choice of `headgate up --network`: whether pods get networks of their own on this machine."""

import ipaddress
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Literal

from headgate.errors import HeadgateError
from headgate.option import parse_collector
from headgate.redirection.rules import DNS_PORT
from headgate.standalone.address_pool import ALL_RANGES, FIRST_RANGE, OVERLAPPING, PodNetworking
from headgate.standalone.network.machine_network import MachineNetwork, used_ranges
from headgate.standalone.network.namespaces import try_namespace

NetworkOption = Literal["host", "pod", "auto"]

log = logging.getLogger(__name__)


def choose_network(option: NetworkOption) -> PodNetworking:
    """Return whether pods share the machine's network or have networks of their own, and log the choice.

    Raises HeadgateError if the machine does not allow the networks that the option demands.
    """
    if option == "host":
        return "host"
    fault = missing()
    if fault and option == "pod":
        raise HeadgateError(f"pods can't have networks of their own here: {fault}; or start with --network host")
    if fault:
        log.warning("Pods share the machine's network (--network auto): %s", fault)
        return "host"
    log.warning(
        "Pods have networks of their own (--network %s): programs listen on the ports of their manifests", option
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
    if os.geteuid():
        return "only root can create network namespaces; run headgate as root"
    try:
        if used_ranges() >= ALL_RANGES:
            return OVERLAPPING
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
