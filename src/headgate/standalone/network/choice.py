"""The choice of `headgate up --network`: whether pods get networks of their own on this machine."""

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Literal

from headgate.errors import HeadgateError
from headgate.option import parse_collector
from headgate.standalone.address_pool import PodNetworking
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
        try_namespace()
    except (OSError, HeadgateError) as error:
        return f"a network namespace can't be set up: {error}"
    return ""
