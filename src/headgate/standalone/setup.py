"""Prepares a start on one machine: the state directory, the store of objects, the address range and the listeners."""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import Sidecars, explicit_sidecars, sidecars_in_networks
from headgate.api.exposition import PATH
from headgate.errors import HeadgateError
from headgate.objects.events import EventRecorder
from headgate.objects.gateways import ensure_class
from headgate.proxy_programs.programs import find_program
from headgate.settings import Settings
from headgate.standalone.address_pool import AddressPool, PodNetworking, claim_range
from headgate.standalone.controllers.gateways import CLASS_DESCRIPTION
from headgate.standalone.controllers.services import (
    reserve_cluster_ips,
    service_admission,
    stored_range,
    track_cluster_ips,
)
from headgate.standalone.gateway import GATEWAY
from headgate.standalone.listeners import (
    LOOPBACK,
    address_of,
    free_address,
    listen,
    localhost_port,
    lowest_port,
    split_address,
)
from headgate.standalone.machine_node import admit_nodes
from headgate.standalone.network.choice import choose_network, unreachable
from headgate.standalone.network.machine_network import network_for, used_ranges
from headgate.standalone.network.machine_network import remove_unused as remove_unused_networks
from headgate.standalone.network.namespaces import NetworkNamespace
from headgate.standalone.network.pod_network import PodNetworks
from headgate.standalone.network.portal import Portal
from headgate.standalone.options import MachineOptions
from headgate.standalone.pods.leftovers import end_gateways_elsewhere, gateway_pid
from headgate.standalone.pods.misplaced import delete_misplaced
from headgate.standalone.pods.runtime import COMPONENT
from headgate.standalone.runtime_directory import claimed, remove_unused
from headgate.standalone.runtime_info import RuntimeInfo, read_runtime_info
from headgate.standalone.state_directory import state_directory
from headgate.standalone.store.memory import MemoryStore
from headgate.standalone.store.sqlite import SqliteJournal

log = logging.getLogger(__name__)
DATABASE = "objects.sqlite"
GUARDS = "guards.json"
ADMIN_SOCKET = "admin.sock"
PROBE_SOCKET = "probe.sock"
XDS_SOCKET = "xds.sock"


class Setup(NamedTuple):
    """The directories, object store, addresses and listeners that `set_up` opens for the other parts of headgate.

    `sockets` is the runtime directory. `inherited` has the file descriptors that each proxy inherits. While a proxy has them
    open, no other headgate claims the address range or removes the runtime directory. `journal` is None for an ephemeral
    store, and `metrics`, the listener for Prometheus, if no metrics are exposed.
    `networks` is None if pods share the machine's network. `portal` connects them with the machine's network where root does not.
    """

    state: Path
    sockets: Path
    store: MemoryStore
    journal: SqliteJournal | None
    addresses: AddressPool
    networks: PodNetworks | None
    sidecars: Sidecars
    inherited: tuple[int, ...]
    settings: Settings
    info: RuntimeInfo
    api: socket.socket
    metrics: socket.socket | None
    portal: Portal | None = None

    @property
    def node(self) -> NetworkNamespace | None:
        """The network in which gateways listen; None for that of the machine."""
        return self.networks.machine.node if self.networks else None

    @property
    def xds(self) -> Path:
        """The path of the unix socket on which the xDS server listens."""
        return self.sockets / XDS_SOCKET

    def damaged(self) -> Sequence[Path]:
        """Return the files with damaged rows of the store."""
        return self.journal.kept_aside() if self.journal else ()


async def set_up(options: MachineOptions, stack: AsyncExitStack) -> Setup:
    """Lock the state directory, open the store in it, claim an address range and listen. Raises HeadgateError."""
    state = state_directory(options, stack)
    # The stack enters the runtime directory first, and so removes it last.
    sockets, owner = stack.enter_context(claimed(state, os.environ))
    remove_unused(os.environ)
    journal = None
    if not options.ephemeral:
        journal = SqliteJournal.open(options.state / DATABASE)
        stack.callback(journal.close)
    networking = await asyncio.to_thread(choose_network, options.network, options.network_fault)
    # Without root, programs listen on all ports of the node.
    lowest = 0 if networking == "pod" else lowest_port()
    settings = options.mesh.settings(lowest_port=lowest, nginx=bool(find_program("nginx")))
    number, guard = await _claim(options, networking, journal, stack)
    networks = await _pod_networks(number, settings, state, stack) if networking == "pod" else None
    await end_gateways_elsewhere(state, GATEWAY, networks.machine.node if networks else None)
    collectors = {"--otlp-collector": options.mesh.otlp_collector, "--otlp-traces": settings.otlp_traces}
    for message in unreachable(collectors) if networks else ():
        log.warning("%s", message)
    addresses = AddressPool(number, networking)
    mode = options.mesh.sidecars
    sidecars = sidecars_in_networks(mode) if networks else explicit_sidecars(mode)
    store = MemoryStore(
        check=object_check(settings),
        admit=admission(sidecars, {("v1", "Node"): admit_nodes, ("v1", "Service"): service_admission(addresses)}),
        kept=track_cluster_ips(addresses),
        journal=journal,
    )
    await reserve_cluster_ips(store, addresses)
    is_new_node = networks is not None and networks.machine.is_new_node
    await delete_misplaced(store, EventRecorder(store, COMPONENT), networking, is_new_node=is_new_node)
    await ensure_class(store, CLASS_DESCRIPTION)
    last = read_runtime_info(state)
    api = stack.enter_context(listen(options.api_address, last.api.removeprefix("https://") if last else ""))
    metrics = _listen_for_metrics(options, stack, last)
    is_adopted = await _accepts(sockets / ADMIN_SOCKET)
    info = RuntimeInfo(
        api=f"https://{address_of(api)}",
        kubeconfig=str(state / "kubeconfig"),
        proxy=free_address(options.proxy_address, last.proxy if last else "", is_adopted=is_adopted),
        probe=str(sockets / PROBE_SOCKET),
        admin=str(sockets / ADMIN_SOCKET),
        pid=os.getpid(),
        metrics=f"http://{address_of(metrics)}{PATH}" if metrics else "",
        node=networks.machine.node.path if networks and networks.machine.node else "",
        localhost_port=localhost_port(
            options.localhost_port, number, last.localhost_port if last else 0, is_adopted=is_adopted
        ),
    )
    portal = None
    if networks and networks.machine.node:
        shared = (split_address(info.proxy), (LOOPBACK, info.localhost_port))
        portal = Portal(networks.machine, lowest_port(), shared)
    inherited = (guard, owner)
    return Setup(
        state, sockets, store, journal, addresses, networks, sidecars, inherited, settings, info, api, metrics, portal
    )


async def _claim(
    options: MachineOptions, networking: PodNetworking, journal: SqliteJournal | None, stack: AsyncExitStack
) -> tuple[int, int]:
    """Claim an address range, and remove the networks that no headgate uses; return A and the guard's file descriptor."""
    addressed = (*journal.of_kind("", "Service"), *journal.of_kind("", "Pod")) if journal else ()
    used = await asyncio.to_thread(used_ranges) if networking == "pod" else ()
    number, guard = claim_range(stored_range(addressed), record=options.state / GUARDS, without=used)
    stack.enter_context(guard)
    await asyncio.to_thread(remove_unused_networks, number, keeps_own=networking == "pod")
    return number, guard.fileno()


async def _pod_networks(number: int, settings: Settings, state: Path, stack: AsyncExitStack) -> PodNetworks:
    """Create the network of the pods, which ends with the stack. Raises HeadgateError."""
    try:
        machine = await asyncio.to_thread(network_for, number, gateway_pid(state, GATEWAY))
        stack.push_async_callback(asyncio.to_thread, machine.remove)
        await asyncio.to_thread(machine.create)
    except OSError as error:
        raise HeadgateError(f"the network of the pods can't be created: {error}; use --network host") from error
    return PodNetworks(machine, settings.domain)


async def _accepts(path: Path) -> bool:
    """Return whether a process accepts connections on a unix socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


def _listen_for_metrics(
    options: MachineOptions, stack: AsyncExitStack, last: RuntimeInfo | None
) -> socket.socket | None:
    if not options.metrics_address:
        return None
    return stack.enter_context(listen(options.metrics_address, urlsplit(last.metrics).netloc if last else ""))
