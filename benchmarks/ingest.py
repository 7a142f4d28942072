"""Measure the cost of receiving the reports of a large mesh: CPU time, memory per edge, and the time to read the counts.

`python benchmarks/ingest.py [PROXIES EDGES]`: every proxy reports all of its series every 5 seconds. Another process
sends the reports through gRPC on a unix socket; only the receiver is measured.
"""

import asyncio
import gc
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import grpc.aio
import msgspec

from headgate.envoy import pb
from headgate.envoy.stats_sink import BOUNDS, CLUSTER_SECONDS, reports_per_eviction
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.reports.otlp import METHOD
from headgate.telemetry.windows import Windows
from headgate.xds.authentication import LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

INTERVAL_S = 5.0
BUSY = 0.5  # the fraction of edges with requests between two reports
SECRET = bytes(32)
START = time.time() - 10


class Scale(NamedTuple):
    """The numbers of proxies, the edges of each, and its reports. All series are new in the first report."""

    proxies: Sequence[int]
    edges: int
    rounds: int


USUAL = Scale(proxies=(200, 2000), edges=20, rounds=4)
SMALLEST = Scale(proxies=(2,), edges=1, rounds=2)


class Simulated:
    """One proxy with `edges` destinations."""

    def __init__(self, number: int, edges: int) -> None:
        self.node = f"sidecar/default/client-{number}"
        self.token = LocalTokens(SECRET).issue(self.node)
        self._random = random.Random(number)
        self._edges = [(f"default/server-{edge}-{number % 50}", [0] * (len(BOUNDS) + 1)) for edge in range(edges)]
        self._rounds = 0

    def report(self) -> bytes:
        """Return the next report: a cumulative histogram for each edge."""
        self._rounds += 1
        points = []
        for pod, buckets in self._edges:
            if self._rounds == 1 or self._random.random() < BUSY:
                for _ in range(8):
                    buckets[min(max(int(self._random.gauss(60, 6)), 0), len(buckets) - 1)] += 1
            cluster = "outbound/default/web/8080 default/web"
            tags = _attributes([("cluster", cluster), ("code", "200- "), ("pod", pod)])
            points.append(
                pb.HistogramDataPoint(
                    attributes=tags,
                    count=sum(buckets),
                    bucket_counts=buckets,
                    explicit_bounds=BOUNDS,
                    start_time_unix_nano=int(START * 1e6),
                    time_unix_nano=int((START + self._rounds * INTERVAL_S) * 1e9),
                )
            )
        metrics = [pb.Metric(name="mesh.latency") for _ in points]
        for metric, point in zip(metrics, points, strict=True):
            metric.histogram.data_points.append(point)
        part = pb.ResourceMetrics(scope_metrics=[pb.ScopeMetrics(metrics=metrics)])
        part.resource.attributes.extend(_attributes([("node", self.node)]))
        return pb.ExportMetricsServiceRequest(resource_metrics=[part]).SerializeToString()


def _attributes(pairs: list[tuple[str, str]]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=pb.AnyValue(string_value=text)) for key, text in pairs]


def reports(proxies: int, edges: int, rounds: int) -> Iterator[list[tuple[str, bytes]]]:
    """Yield rounds of reports; a round is a list of pairs of token and report."""
    all_of_them = [Simulated(number, edges) for number in range(proxies)]
    for _ in range(rounds):
        yield [(proxy.token, proxy.report()) for proxy in all_of_them]


def send(address: str, proxies: int, edges: int, rounds: int, turn: Barrier) -> None:
    """Send all rounds; wait before each round until the receiver is ready."""

    async def main() -> None:
        channels = [grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(20)]
        for sent in reports(proxies, edges, rounds):
            turn.wait()
            for first in range(0, len(sent), 100):
                calls = [
                    channels[number % len(channels)].unary_unary(METHOD)(
                        data, metadata=[("authorization", f"Bearer {token}")]
                    )
                    for number, (token, data) in enumerate(sent[first : first + 100])
                ]
                await asyncio.gather(*calls)
            turn.wait()

    asyncio.run(main())


async def measure(scale: Scale) -> None:
    """Print the costs for each number of proxies."""
    for proxies in scale.proxies:
        await receive(proxies, scale.edges, scale.rounds)


async def receive(proxies: int, edges: int, rounds: int) -> None:
    """Receive the reports and print the costs."""
    receiver = Receiver(Windows(), reports_per_eviction(CLUSTER_SECONDS), clock=lambda: START)
    with tempfile.TemporaryDirectory() as directory:
        address = f"unix:{directory}/xds.sock"
        xds = XdsServer(Fleet(), LocalTokens(SECRET), unary_methods={METHOD: receiver.export})
        await xds.start(address)
        context = multiprocessing.get_context("spawn")
        turn = context.Barrier(2)
        sender = context.Process(target=send, args=(address, proxies, edges, rounds, turn))
        sender.start()
        before = _memory()
        for number in range(rounds):
            await asyncio.to_thread(turn.wait)
            began, wall = time.process_time(), time.perf_counter()
            await asyncio.to_thread(turn.wait)
            spent = time.process_time() - began
            what = "all series new" if number == 0 else f"{BUSY:.0%} of the edges busy"
            print(
                f"round {number}, {what}: {spent:.2f} s CPU of {INTERVAL_S:g} s = {spent / INTERVAL_S:.2f} cores, "
                f"{spent / proxies * 1e6:.0f} us per report, elapsed {time.perf_counter() - wall:.1f} s"
            )
        await asyncio.to_thread(sender.join)
        await xds.stop()
    gc.collect()
    print(f"memory: {(_memory() - before) / proxies / edges:.1f} KB per edge")
    began = time.perf_counter()
    reading = await receiver.windows.read(30)
    print(f"reading {len(reading.flows)} flows: {time.perf_counter() - began:.2f} s; {reading.cut}")
    began = time.perf_counter()
    saved = await receiver.checkpoint()
    middle = time.perf_counter()
    print(
        f"checkpoint: {middle - began:.2f} s, {len(msgspec.msgpack.encode(saved)) / 1e6:.1f} MB, "
        f"encoding {time.perf_counter() - middle:.2f} s"
    )


def _memory() -> float:
    """Return the memory in use, in KB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


if __name__ == "__main__":
    proxies, edges = map(int, sys.argv[1:] or ("500", "20"))
    asyncio.run(measure(USUAL._replace(proxies=(proxies,), edges=edges)))
