"""Run the benchmarks: `make bench` for all (about 45 minutes), or `make bench ARGS="build spread"` for some.

Ratios are computed within one run. Seconds are reported and never asserted, because they depend on the machine and its
load (docs/performance.md).
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks share code with the tests

from benchmarks import (
    build,
    changes,
    cluster,
    cluster_routes,
    fleet,
    handover,
    ingest,
    instructions,
    issuance,
    matches,
    metrics_api,
    metrics_cost,
    mirror,
    plan,
    proxy,
    rollouts,
    routes,
    sidecar_changes,
    sidecar_memory,
    sidecars,
    sizes,
    spread,
    statuses,
)


async def _build() -> None:
    build.measure()


async def _plan() -> None:
    plan.measure()


async def _sizes() -> None:
    sizes.count()


async def _sidecar_changes() -> None:
    sidecar_changes.measure()


async def _handover() -> None:
    handover.measure()


async def _cluster_routes() -> None:
    cluster_routes.measure()


async def _ingest() -> None:
    for proxies in (200, 2000):
        await ingest.receive(proxies, 20)


BENCHMARKS: dict[str, tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = {
    "build": ("a build, a change of one weight, and a new route", _build),
    "changes": ("the time from the write of a weight to its effect on requests", changes.measure),
    "spread": ("the deviation of shares in 100 requests", spread.measure),
    "matches": ("header expressions before the matching route", matches.measure),
    "mirror": ("mirrored copies, and mirrors that hang", mirror.compare),
    "issuance": ("certificates for 1000 proxies, and a new root certificate for all", issuance.measure),
    "ingest": ("the reports of 200 and of 2,000 proxies", _ingest),
    "metrics-api": ("answers of the metrics API with 5,000 pods", metrics_api.measure),
    "metrics-cost": ("the cost of traffic metrics in a proxy", metrics_cost.compare),
    "sidecars": ("a request with no sidecar, with one, with two, and with two and mutual TLS", sidecars.compare),
    "sidecar_memory": ("memory and start time of a sidecar, by the number of Services", sidecar_memory.measure),
    "sidecar_changes": ("a change with 1, 10 and 100 sidecars connected", _sidecar_changes),
    "fleet": ("100 streams: connecting, a weight, a restart, a storm of weights; then larger fleets", fleet.measure),
    "cluster": ("a replica of the control plane on a cluster with 10,000 pods", cluster.measure),
    "handover": ("the time that a sidecar has no control plane while the active replica is replaced", _handover),
    "sizes": ("the bytes of a first configuration, by type and field", _sizes),
    "rollouts": ("simulated rollouts: wrong decisions, and requests until a decision", rollouts.measure),
    "routes": ("Gateways: new routes, a changing route, attached routes, and no change", routes.measure),
    "cluster_routes": ("the same on a real cluster, with fewer routes", _cluster_routes),
    "statuses": ("the cost of statuses, by the number of objects and proxies", statuses.measure),
    "plan": ("plans of changes, by the number of routes, and checks of access", _plan),
    "proxy": ("the generated configuration against minimal ones", proxy.compare),
    "instructions": ("instructions of Envoy per request, against minimal configurations", instructions.compare),
}


def main() -> None:
    """Run the benchmarks that the arguments name, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    for name in names:
        what, work = BENCHMARKS[name]
        print(f"\n== {name}: {what}", flush=True)
        uvloop.run(work())


if __name__ == "__main__":
    main()
