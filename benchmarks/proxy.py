"""What headgate's configuration costs, against the least configuration that does the same split.

usage: proxy.py [--rounds 7] [--seconds 2] [--connections 32]

Two Envoys split 90/10 over the same two backends: one is configured by headgate over xDS, the other by a few lines
written by hand. They take turns in random order, so that what disturbs the machine disturbs both. The ratio is what
counts; rates depend on the machine. Aim: at least 0.97.
"""

import argparse
import json
import random
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import uvloop

from lab import free_port, start_envoy, start_gateway, website
from load import Backend, cpu_seconds, drive

WEIGHTS = (90, 10)


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


def minimal(port: int, backends: list[int], admin: str) -> bytes:
    """Return the configuration that somebody would write by hand for this split."""
    names = [f"v{number}" for number in range(len(backends))]
    weighted = [{"name": name, "weight": weight} for name, weight in zip(names, WEIGHTS, strict=True)]
    manager = {
        "@type": "type.googleapis.com/"
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "minimal",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": weighted}}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    listener = {
        "address": _address(port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    clusters = [
        {
            "name": name,
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(backend)}}]}],
            },
        }
        for name, backend in zip(names, backends, strict=True)
    ]
    return json.dumps(
        {
            "admin": {"address": {"pipe": {"path": admin}}},
            "static_resources": {"listeners": [listener], "clusters": clusters},
        }
    ).encode()


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


async def measure(contender: Contender, *, connections: int, seconds: float) -> Result:
    """Load one proxy for some seconds. Raises SystemExit when a request fails."""
    before = cpu_seconds(contender.pid)
    load = await drive(contender.port, connections=connections, seconds=seconds)
    if load.failed or not load.requests:
        raise SystemExit(f"{contender.name}: {load.failed} of {load.requests} requests failed")
    used = cpu_seconds(contender.pid) - before
    return Result(load.requests / load.seconds, load.p99, used / load.requests * 1e6)


def report(contenders: list[Contender]) -> None:
    """Print a row for each proxy, and the ratios of the first to the second within each round."""
    print(f"{'':10} {'req/s':>8} {'p99 ms':>8} {'CPU us/req':>11}   medians of {len(contenders[0].results)} slices")
    for contender in contenders:
        middle = [statistics.median(values) for values in zip(*contender.results, strict=True)]
        print(f"{contender.name:10} {middle[0]:8.0f} {middle[1]:8.2f} {middle[2]:11.1f}")
    pairs = list(zip(contenders[0].results, contenders[1].results, strict=True))
    rate = statistics.median(one.rate / other.rate for one, other in pairs)
    cpu = statistics.median(other.cpu / one.cpu for one, other in pairs)
    p99 = statistics.median(one.p99 / other.p99 for one, other in pairs)
    print(f"{contenders[0].name} / {contenders[1].name}: requests {rate:.3f}, p99 {p99:.3f}; by CPU {cpu:.3f}")


async def compare(*, rounds: int, seconds: float, connections: int) -> None:
    """Run the comparison and print it."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend()) for _ in WEIGHTS]
        port = free_port()
        by_hand = minimal(port, backends, f"{directory}/minimal.sock")
        gateway = await start_gateway(stack, directory, website(free_port(), backends, WEIGHTS))
        contenders = [
            Contender("generated", gateway.port, gateway.pid, []),
            Contender("minimal", port, await start_envoy(stack, directory / "minimal", by_hand), []),
        ]
        for contender in contenders:
            await measure(contender, connections=connections, seconds=1)  # connections to the backends, warm caches
        for _ in range(rounds):
            for contender in random.sample(contenders, len(contenders)):
                contender.results.append(await measure(contender, connections=connections, seconds=seconds))
        report(contenders)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--connections", type=int, default=32)
    arguments = parser.parse_args()
    uvloop.run(compare(rounds=arguments.rounds, seconds=arguments.seconds, connections=arguments.connections))


if __name__ == "__main__":
    main()
