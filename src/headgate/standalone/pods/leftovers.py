"""Finds and ends the processes that a killed headgate left running, by the records in its state directory.

`headgate up` with the same state directory adopts these processes. This module is for `headgate down` and deleted pods.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headgate import control_groups
from headgate.atomic_file import read_json
from headgate.redirection.exclusions import Exclusions
from headgate.standalone.network.namespaces import NetworkNamespace, is_in
from headgate.standalone.network.pod_network import PodNetwork
from headgate.standalone.pods.containers import RECORD
from headgate.standalone.pods.sidecars import DIRECTORY
from headgate.standalone.processes import Process, identity_of
from headgate.standalone.proxies import envoy_process, nginx_process
from headgate.standalone.supervisor import ProgramRecord, surviving

log = logging.getLogger(__name__)
GRACE_S = 5.0  # seconds between SIGTERM and SIGKILL


class Leftover(NamedTuple):
    """A live process of an earlier headgate: a description, the process, and the file with its record."""

    name: str
    process: Process
    record: Path


def containers(state: Path) -> list[Leftover]:
    """Return the running processes of all containers."""
    return [leftover for pod in _pods(state) for leftover in containers_of(pod)]


def proxies(state: Path, gateway: str) -> list[Leftover]:
    """Return the running proxies: sidecars, nginx, and the gateway, whose directory is named `gateway`."""
    sidecars = [leftover for pod in _pods(state) for leftover in sidecar_of(pod)]
    return [*sidecars, *_nginx(state), *_proxy(state / gateway, "the gateway")]


def containers_of(pod: Path) -> Iterator[Leftover]:
    """Yield the running processes of a pod's containers; `pod` is its directory."""
    for path in sorted(pod.glob(f"*/{RECORD}")):
        if process := surviving(path):
            yield Leftover(f"container {path.parent.name} of pod {_name(pod)}", process, path)


def sidecar_of(pod: Path) -> Iterator[Leftover]:
    """Yield the sidecar of a pod if it runs; `pod` is its directory."""
    return _proxy(pod / DIRECTORY, f"the sidecar of pod {_name(pod)}")


async def join_network(pod: Path, network: PodNetwork, redirected: Exclusions | None) -> None:
    """Enter the network of a pod, which its running processes may have; end its processes in any other network.

    They are in another one when the devices of their network were removed. `pod` is its directory. With exclusions, the
    connections of a new network are redirected to the pod's sidecar. Raises OSError and RedirectionError.
    """
    running = [*containers_of(pod), *sidecar_of(pod)]
    await network.join(redirected, [leftover.process.identity.pid for leftover in running])
    elsewhere = []
    for leftover in running:
        if network.has(leftover.process.identity.pid):
            leftover.process.detach()
        else:
            elsewhere.append(leftover)
    await end(elsewhere)


async def end_gateways_elsewhere(state: Path, gateway: str, node: NetworkNamespace | None) -> None:
    """End the gateway and each nginx in any other network than `node`, or None for that of headgate: they can't be adopted."""
    elsewhere = []
    for leftover in (*_nginx(state), *_proxy(state / gateway, "the gateway")):
        if is_in(node, leftover.process.identity.pid):
            leftover.process.detach()
        else:
            elsewhere.append(leftover)
    await end(elsewhere)


def gateway_pid(state: Path, gateway: str) -> int:
    """Return the process ID of the gateway of a killed headgate, 0 if there is none."""
    last = read_json(state / gateway / envoy_process.RECORD, ProgramRecord)
    return last.identity.pid if last and identity_of(last.identity.pid) == last.identity else 0


def _proxy(directory: Path, name: str) -> Iterator[Leftover]:
    if process := surviving(directory / envoy_process.RECORD):
        yield Leftover(name, process, directory / envoy_process.RECORD)


def _nginx(state: Path) -> Iterator[Leftover]:
    for path in sorted((state / nginx_process.DIRECTORY).glob("*_*")):
        if process := surviving(path / nginx_process.RECORD):
            name = path.name.replace("_", "/")
            yield Leftover(f"the nginx of the Service {name}", process, path / nginx_process.RECORD)


async def survivors(state: Path, gateway: str) -> tuple[str, ...]:
    """Return a description of each running process, containers first, and leave all of them alone."""
    left = [*containers(state), *proxies(state, gateway)]
    for leftover in left:
        leftover.process.detach()
    return tuple(f"{leftover.name}, process {leftover.process.identity.pid}" for leftover in left)


async def end(leftovers: Iterable[Leftover]) -> list[tuple[Leftover, bool]]:
    """End processes concurrently; return each process with True if it is gone."""
    every = list(leftovers)
    gone = await asyncio.gather(*(_end(leftover) for leftover in every))
    return list(zip(every, gone, strict=True))


async def remove_directory(pod: Path) -> None:
    """Remove the control groups of a pod whose processes have ended, and its directory."""
    remaining = await asyncio.to_thread(control_groups.remove, pod)
    for group in remaining:
        log.warning("pod %s: %s", _name(pod), remaining_group(group))
    if not remaining:  # else the next headgate needs the records of the groups
        await asyncio.to_thread(shutil.rmtree, pod, ignore_errors=True)


def remaining_group(group: Path) -> str:
    """Return the message about a control group that can't be removed."""
    return f"control group {group} can't be removed: end the processes in it, then run `headgate down`"


async def _end(leftover: Leftover) -> bool:
    gone = await leftover.process.end(GRACE_S)
    if gone:
        leftover.record.unlink(missing_ok=True)  # else the next headgate would count a crash of the process
    return gone


def _pods(state: Path) -> list[Path]:
    return sorted((state / "pods").glob("*_*_*"))


def _name(pod: Path) -> str:
    return "/".join(pod.name.split("_")[:2])
