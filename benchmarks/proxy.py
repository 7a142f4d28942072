"""Measure the cost of headgate's configuration, compared with minimal configurations for the same split.

Three Envoys split 90/10 over the same two backends: one is configured by headgate over xDS, two are configured by hand,
with weighted localities (as headgate does) and with weighted clusters. They take turns in random order, so that
disturbances of the machine affect all alike. The results are ratios, because rates depend on the machine. If the
clients are slower than the proxy, the cost is the CPU time per request. Aim: a ratio of at least 0.97.
"""

import json
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks import contest
from benchmarks.contest import CLIENTS, WEIGHTS, Contender, Scale, compete
from benchmarks.lab import start_envoy, start_gateway, website
from benchmarks.load import Backend
from tests.ports import free_port

USUAL, SMALLEST = contest.USUAL, contest.SMALLEST
Json = dict[str, Any]


def minimal(port: int, backends: list[int], admin: str, *, localities: bool) -> bytes:
    """Return a minimal bootstrap for the split of 90/10, with weighted localities or with weighted clusters."""
    places = [{"lb_endpoints": [{"endpoint": {"address": _address(backend)}}]} for backend in backends]
    if localities:
        clusters = [_by_localities(places)]
        action: Json = {"cluster": "all"}
    else:
        clusters = [_cluster(f"v{number}", [place]) for number, place in enumerate(places)]
        weights = [{"name": f"v{number}", "weight": weight} for number, weight in enumerate(WEIGHTS)]
        action = {"weighted_clusters": {"clusters": weights}}
    resources = {"listeners": [_listener(port, action)], "clusters": clusters}
    return json.dumps({"admin": {"address": {"pipe": {"path": admin}}}, "static_resources": resources}).encode()


def _by_localities(places: list[Json]) -> Json:
    weighted = [
        {**place, "load_balancing_weight": weight, "locality": {"zone": f"v{number}"}}
        for number, (place, weight) in enumerate(zip(places, WEIGHTS, strict=True))
    ]
    return _cluster("all", weighted) | {"common_lb_config": {"locality_weighted_lb_config": {}}}


def _cluster(name: str, endpoints: list[Json]) -> Json:
    return {"name": name, "type": "STATIC", "load_assignment": {"cluster_name": name, "endpoints": endpoints}}


def _listener(port: int, action: Json) -> Json:
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": action}]}]
    types = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "minimal",
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {"address": _address(port), "filter_chains": [{"filters": filters}]}


def _address(port: int) -> Json:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def report(contenders: list[Contender]) -> None:
    """Print the ratios of the first proxy to each other proxy within each round."""
    mine = contenders[0]
    print(f"{'medians of ratios':20} {'req/s':>8} {'p99':>8} {'req per CPU':>11}")
    for other in contenders[1:]:
        pairs = list(zip(mine.results, other.results, strict=True))
        rate = statistics.median(one.rate / two.rate for one, two in pairs)
        p99 = statistics.median(one.p99 / two.p99 for one, two in pairs)
        cpu = statistics.median(two.cpu / one.cpu for one, two in pairs)
        print(f"{'to ' + other.name:20} {rate:8.3f} {p99:8.3f} {cpu:11.3f}")


async def measure(scale: Scale) -> None:
    """Run the comparison and print the results."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg")))
        backends = [stack.enter_context(Backend(processor=CLIENTS)) for _ in WEIGHTS]
        gateway = await start_gateway(stack, directory, website(free_port(), backends, WEIGHTS))
        contenders = [Contender("generated", gateway.port, gateway.pid, [])]
        for name in ("localities", "clusters"):
            port, place = free_port(), directory / name
            by_hand = minimal(port, backends, f"{place}.sock", localities=name == "localities")
            contenders.append(Contender(f"minimal, {name}", port, await start_envoy(stack, place, by_hand), []))
        await compete(contenders, scale)
        report(contenders)
