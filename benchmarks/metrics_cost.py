"""What counting costs: an Envoy as headgate configures it, against the same one without loggers and reports (R97).

Both split 90/10 over the same backends; they take turns in random order, so that what disturbs the machine disturbs both.
Ratios are taken within a round. Aim: at least 0.92 of the throughput, at most 10 us of CPU per request more.
"""

import random
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.lab import free_port, start_envoy, website
from benchmarks.load import Backend, cpu_seconds, drive, generator, pin
from google.protobuf import json_format

from headgate.envoy import messages, pb
from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.config import LISTENER, Encoded, ProxyConfig
from headgate.envoy.encode import Memo, encode, encode_resource
from headgate.envoy.view import Node, project
from headgate.telemetry.otlp import METHOD
from headgate.xds.fleet import Fleet
from headgate.xds.server import Prove, XdsServer

WEIGHTS = (90, 10)
ROUNDS = 15
SECONDS = 2.0
CONNECTIONS = 32
PROXIES, CLIENTS = 0, 1
"""Processors: one for the proxies, which take turns, and one for clients and backends."""
ROUTER = "envoy.filters.http.router"


class Result(NamedTuple):
    """One slice of load on one proxy; `cpu` is microseconds per request in Envoy."""

    rate: float
    p99: float
    cpu: float


class Contender(NamedTuple):
    """One of the proxies that are compared."""

    name: str
    port: int
    pid: int
    results: list[Result]


def silent(config: ProxyConfig) -> ProxyConfig:
    """Return a configuration without its loggers."""
    listeners = {name: _silenced(name, found) for name, found in config[LISTENER].items()}
    return {**config, LISTENER: listeners}


def _silenced(name: str, encoded: Encoded) -> Encoded:
    listener = pb.Listener.FromString(pb.Resource.FromString(encoded.body).resource.value)
    network = listener.filter_chains[0].filters[0]
    manager = pb.HttpConnectionManager.FromString(network.typed_config.value)
    del manager.access_log[:]
    router = pb.HttpFilter(name=ROUTER, typed_config=pb.pack(pb.Router(suppress_envoy_headers=True)))
    manager.http_filters[-1].CopyFrom(router)
    network.typed_config.CopyFrom(pb.pack(manager))
    return encode_resource(name, listener, encoded.needs)


def unreporting(content: bytes) -> bytes:
    """Return a bootstrap without its sink."""
    message = json_format.Parse(content, pb.Bootstrap(), descriptor_pool=messages.pool())
    del message.stats_sinks[:]
    del message.admin.access_log[:]
    message.ClearField("stats_eviction_interval")
    text = json_format.MessageToJson(message, descriptor_pool=messages.pool(), preserving_proto_field_name=True)
    return text.encode()


async def _taken(_report: bytes, _prove: Prove) -> bytes:
    return b""


async def start(stack: AsyncExitStack, directory: Path, backends: list[int], *, counts: bool) -> Contender:
    """Start a proxy that counts, or one that doesn't."""
    name, port, fleet = "counting" if counts else "without", free_port(), Fleet()
    place = directory / name
    place.mkdir()
    proxy = fleet.expect(name)
    config = encode(project(website(port, backends, WEIGHTS), Node(id=name)), Memo())
    proxy.config.set(config if counts else silent(config))
    beside: Mapping[str, Any] = {METHOD: _taken}
    server = XdsServer(fleet, beside=beside)
    await server.start(f"unix:{place}/xds.sock")
    stack.push_async_callback(server.stop)
    content = bootstrap(node_id=name, xds_socket=f"{place}/xds.sock", admin_socket=f"{place}/envoy.sock")
    pid = await start_envoy(stack, place / "envoy", content if counts else unreporting(content))
    return Contender(name, port, pid, [])


async def measure_slice(contender: Contender, seconds: float) -> Result:
    """Load one proxy for some seconds. Raises SystemExit when a request fails."""
    before = cpu_seconds(contender.pid)
    load = await drive(contender.port, connections=CONNECTIONS, seconds=seconds)
    if load.failed or not load.requests:
        raise SystemExit(f"{contender.name}: {load.failed} of {load.requests} requests failed")
    used = cpu_seconds(contender.pid) - before
    return Result(load.requests / load.seconds, load.p99, used / load.requests * 1e6)


def report(counting: Contender, without: Contender) -> None:
    """Print a row for each proxy, and what counting costs within each round."""
    print(f"{len(counting.results)} slices of {SECONDS:g} s each, {CONNECTIONS} connections, load by {generator()}")
    print(f"{'medians':12} {'req/s':>8} {'p99 ms':>8} {'CPU us/req':>11}")
    for contender in (counting, without):
        rate, p99, cpu = (statistics.median(values) for values in zip(*contender.results, strict=True))
        print(f"{contender.name:12} {rate:8.0f} {p99:8.2f} {cpu:11.1f}")
    pairs = list(zip(counting.results, without.results, strict=True))
    rate = statistics.median(one.rate / two.rate for one, two in pairs)
    cpu = statistics.median(one.cpu - two.cpu for one, two in pairs)
    saturated = statistics.median(two.cpu / one.cpu for one, two in pairs)
    print(
        f"counting costs, medians of rounds: {cpu:+.1f} us of CPU per request, {saturated:.3f} of the requests per CPU,"
    )
    print(f"{rate:.3f} of the throughput of these clients")


async def compare() -> None:
    """Run the comparison and print it."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(processor=CLIENTS)) for _ in WEIGHTS]
        counting = await start(stack, directory, backends, counts=True)
        without = await start(stack, directory, backends, counts=False)
        for contender in (counting, without):
            pin(contender.pid, PROXIES)
            await measure_slice(contender, seconds=1)  # connections to the backends, warm caches
        for _ in range(ROUNDS):
            for contender in random.sample((counting, without), 2):
                contender.results.append(await measure_slice(contender, SECONDS))
        report(counting, without)
