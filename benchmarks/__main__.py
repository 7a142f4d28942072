"""Run the benchmarks: `make bench` for all (about 45 minutes), or `make bench ARGS="build spread"` for some.

`make bench ARGS=--smallest` runs each of them at its smallest scale, which takes a minute. Its figures mean nothing: CI runs
it, so that a benchmark whose code no longer fits to headgate fails with the change. Ratios are computed within one run.
Seconds are reported and never asserted, because they depend on the machine and its load (docs/explain/performance.md).
"""

import argparse
import asyncio
import os
import platform
import sys
import time
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import pytest
import uvloop
from benchmarks import (
    build,
    changes,
    cluster,
    cluster_pods,
    cluster_routes,
    fleet,
    handover,
    ingest,
    instructions,
    issuance,
    many_pods,
    matches,
    metrics_api,
    metrics_cost,
    mirror,
    pages,
    plan,
    proxy,
    question_commands,
    rollouts,
    routes,
    sidecar_changes,
    sidecar_memory,
    sidecars,
    sizes,
    spread,
    starts,
    statuses,
    stored_windows,
    traffic_graphs,
)

SMALLEST_LONGEST_S = 300
"""Seconds after which a benchmark at its smallest scale fails on any machine, because it waits for an event that never comes."""


class Benchmark(Protocol):
    """A module that measures and prints at a scale: how many objects, proxies, rounds or seconds.

    `SMALLEST` is None if what the benchmark runs on takes minutes to start. `measure` calls `pytest.skip`, as the shared
    rigs do, if the machine lacks a program.
    """

    USUAL: Any
    SMALLEST: Any

    def measure(self, scale: Any) -> Coroutine[Any, Any, None]:
        """Print the measurements."""


BENCHMARKS: Mapping[str, tuple[str, Benchmark]] = {
    "build": ("a build, a change to one weight, and a new route", build),
    "changes": ("the time from the write of a weight to its effect on requests", changes),
    "commands": ("the processor time of commands that ask one question, and of a start", question_commands),
    "starts": ("the processor time of a small mesh: a start, an idle minute, and the end, by program", starts),
    "many_pods": ("`headgate up` with 60 pods: time to ready, processor time and memory for a pod", many_pods),
    "spread": ("the deviation of shares in 100 requests", spread),
    "matches": ("header expressions before the matching route", matches),
    "mirror": ("mirrored copies, and mirrors that hang", mirror),
    "issuance": ("certificates for 1000 proxies, and a new root certificate for all", issuance),
    "ingest": ("the reports of 200 and of 2,000 proxies", ingest),
    "stored-windows": ("the stored windows of a day with 1,000 and 20,000 flows", stored_windows),
    "metrics-api": ("answers of the metrics API with 5,000 pods", metrics_api),
    "traffic-graphs": ("the traffic graph of 5,000 workloads, and 50 clients that watch a list", traffic_graphs),
    "pages": ("the cost of 50 open pages of the dashboard", pages),
    "metrics-cost": ("the cost of traffic metrics in a proxy", metrics_cost),
    "sidecars": ("a request with no sidecar, with one, with two, and with two and mutual TLS", sidecars),
    "sidecar_memory": ("memory and start time of a sidecar, by the number of Services", sidecar_memory),
    "sidecar_changes": ("a change with 1, 10 and 100 sidecars connected", sidecar_changes),
    "fleet": ("100 streams: connecting, a weight, a restart, a storm of weights; then larger fleets", fleet),
    "cluster": ("a replica of the control plane on a cluster with 10,000 pods", cluster),
    "handover": ("the time that a sidecar has no control plane while the active replica is replaced", handover),
    "sizes": ("the bytes of a first configuration, by type and field", sizes),
    "rollouts": ("simulated rollouts: wrong decisions, and requests until a decision", rollouts),
    "routes": ("Gateways: new routes, a changing route, attached routes, and no change", routes),
    "cluster_routes": ("the same on a real cluster, with fewer routes", cluster_routes),
    "cluster_pods": ("36 and 105 pods with sidecars that start at once on one node", cluster_pods),
    "statuses": ("the cost of statuses, by the number of objects and proxies", statuses),
    "plan": ("plans of changes, by the number of routes, and checks of access", plan),
    "proxy": ("the generated configuration against minimal ones", proxy),
    "instructions": ("instructions of Envoy per request, against minimal configurations", instructions),
}


def succeeds(benchmark: Benchmark, *, smallest: bool) -> bool:
    """Run a benchmark. If it fails, print its error and return False."""
    began, before = time.monotonic(), processor_seconds()
    try:
        scale = benchmark.SMALLEST if smallest else benchmark.USUAL
        if scale is None:
            pytest.skip("it has no smallest scale: what it runs on takes minutes to start")
        uvloop.run(asyncio.wait_for(benchmark.measure(scale), SMALLEST_LONGEST_S if smallest else None))
    except pytest.skip.Exception as reason:
        print(f"skipped: {reason}")
    except Exception:  # noqa: BLE001 the benchmarks after it still run
        traceback.print_exc()
        return False
    print(f"({time.monotonic() - began:.1f} s, {processor_seconds() - before:.1f} s of processor time)", flush=True)
    return True


def processor_seconds() -> float:
    """Return the processor time of this process and of the processes that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run(names: Sequence[str], *, smallest: bool) -> Sequence[str]:
    """Run benchmarks one after the other; return the names of those that failed."""
    failed = []
    for name in names:
        what, benchmark = BENCHMARKS[name]
        print(f"\n== {name}: {what}", flush=True)
        if not succeeds(benchmark, smallest=smallest):
            failed.append(name)
    return failed


def main() -> None:
    """Run the benchmarks that the arguments name, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument(
        "--smallest", action="store_true", help="show that the benchmarks work, at their smallest scale"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    if failed := run(arguments.names or list(BENCHMARKS), smallest=arguments.smallest):
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
