"""Measure the cost of traffic metrics: Envoys with and without access logs and metrics reports (R97).

Both split 90/10 over the same backends. They take turns in random order, so that disturbances of the machine affect
both. Ratios compare slices of the same round. Aim: at least 0.92 of the throughput, at most 10 us more CPU time per
request.
"""

import statistics
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks import contest
from benchmarks.contest import CLIENTS, WEIGHTS, Contender, Scale, compete
from benchmarks.lab import start_envoy, website
from benchmarks.load import Backend
from google.protobuf import json_format
from tests.ports import free_port

from headgate.envoy import descriptors, pb
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import LISTENER, Encoded, ProxyConfig
from headgate.envoy.encode import Memo, encode, encode_resource
from headgate.envoy.view import Node, project
from headgate.telemetry.reports.otlp import METHOD
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer
from headgate.xds.unary_methods import CheckNode

USUAL, SMALLEST = contest.USUAL, contest.SMALLEST


def silent(config: ProxyConfig) -> ProxyConfig:
    """Return a configuration whose listeners have no access loggers."""
    listeners = {name: _silenced(name, found) for name, found in config[LISTENER].items()}
    return {**config, LISTENER: listeners}


def _silenced(name: str, encoded: Encoded) -> Encoded:
    listener = pb.Listener.FromString(pb.Resource.FromString(encoded.body).resource.value)
    network = listener.filter_chains[0].filters[0]
    manager = pb.HttpConnectionManager.FromString(network.typed_config.value)
    del manager.access_log[:]
    network.typed_config.CopyFrom(pb.pack(manager))
    return encode_resource(name, listener, encoded.needs)


def unreporting(content: bytes) -> bytes:
    """Return a bootstrap without its stats sink."""
    message = json_format.Parse(content, pb.Bootstrap(), descriptor_pool=descriptors.pool())
    del message.stats_sinks[:]
    del message.admin.access_log[:]
    message.ClearField("stats_eviction_interval")
    text = json_format.MessageToJson(message, descriptor_pool=descriptors.pool(), preserving_proto_field_name=True)
    return text.encode()


async def _taken(_report: bytes, _check_node: CheckNode) -> bytes:
    return b""


async def start(stack: AsyncExitStack, directory: Path, backends: list[int], *, counts: bool) -> Contender:
    """Start a proxy with or without traffic metrics."""
    name, port, fleet = "counting" if counts else "without", free_port(), Fleet()
    place = directory / name
    place.mkdir()
    proxy = fleet.expect(name)
    config = encode(project(website(port, backends, WEIGHTS), Node(id=name)), Memo())
    proxy.config.set(config if counts else silent(config))
    beside: Mapping[str, Any] = {METHOD: _taken}
    server = XdsServer(fleet, unary_methods=beside)
    await server.start(f"unix:{place}/xds.sock")
    stack.push_async_callback(server.stop)
    content = bootstrap(node_id=name, xds_socket=f"{place}/xds.sock", admin_socket=f"{place}/envoy.sock")
    pid = await start_envoy(stack, place / "envoy", content if counts else unreporting(content))
    return Contender(name, port, pid, [])


def report(counting: Contender, without: Contender) -> None:
    """Print the cost of traffic metrics, from the ratios within each round."""
    pairs = list(zip(counting.results, without.results, strict=True))
    rate = statistics.median(one.rate / two.rate for one, two in pairs)
    cpu = statistics.median(one.cpu - two.cpu for one, two in pairs)
    saturated = statistics.median(two.cpu / one.cpu for one, two in pairs)
    print(f"with metrics, medians: {cpu:+.1f} us of CPU per request, {saturated:.3f} times the requests per CPU,")
    print(f"{rate:.3f} times the throughput of these clients")


async def measure(scale: Scale) -> None:
    """Run the comparison and print the results."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(processor=CLIENTS)) for _ in WEIGHTS]
        counting = await start(stack, directory, backends, counts=True)
        without = await start(stack, directory, backends, counts=False)
        await compete((counting, without), scale)
        report(counting, without)
