"""The metrics API has the same counts as the clients, also after restarts and rollouts (R83 to R97)."""

import math
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.shop import API, CLIENTS, OUTCOMES, PLAN, PLANNED, SERVERS, ShopMesh, metrics, shop_in
from tests.waiting import until
from tests.wire import Address, Request

from headgate import durations
from headgate.resources.meta import epoch_seconds, timestamp

PERCENTILES = {"p50_response_latency": 0.5, "p90_response_latency": 0.9, "p99_response_latency": 0.99}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopMesh]:
    with shop_in(tmp_path_factory.mktemp("plans")) as found:
        yield found


def test_each_request_counts_once_on_the_edge_between_client_and_server(shop: ShopMesh) -> None:
    """R86, R89, R97: a Deployment has the sum of its pods' counts, and both ends of an edge have the same counts."""
    shop.send(PLAN)
    shop.wait_for_agreement()
    received: Counter[tuple[str, str]] = Counter()
    for (_, server, outcome), number in shop.truth.items():
        received[server, outcome] += number
    for server in ("books", "bank", "mail"):
        found = metrics(shop.ask(f"/namespaces/default/deployments/{server}"))
        assert {outcome: found[outcome] for outcome in OUTCOMES} == {
            outcome: received[server, outcome] for outcome in OUTCOMES
        }
    for client in CLIENTS:
        (pod,) = shop.pods(client)
        sent = edges(shop, pod, "to")
        assert sent
        for server in (pod for app in SERVERS for pod in shop.pods(app)):
            assert edges(shop, server, "from").get(name_of(pod)) == sent.get(name_of(server))


def name_of(pod: Any) -> str:
    return str(pod["metadata"]["name"])


def edges(shop: ShopMesh, pod: Any, direction: str) -> Mapping[str, Mapping[str, float]]:
    """Return the metrics of a pod's edges in a direction, by peer."""
    items = shop.ask(f"/namespaces/default/pods/{name_of(pod)}/edges")["items"]
    return {item["edge"]["resource"]["name"]: metrics(item) for item in items if item["edge"]["direction"] == direction}


def test_the_server_counts_a_client_without_a_proxy_by_the_clients_address(shop: ShopMesh) -> None:
    """R96: each request counts once."""
    (pod,) = shop.pods("open")
    before = edges(shop, pod, "from")
    for status in (200, 503, 200):
        answer = shop.mesh.ask(Request(Address(pod["status"]["podIP"], 8080), target=f"/{status}/0"))
        assert answer.status == status
    none = dict.fromkeys(OUTCOMES, 0.0)

    def gained() -> Mapping[str, Mapping[str, float]]:
        found = edges(shop, pod, "from")
        return {
            name: {outcome: found[name][outcome] - before.get(name, none)[outcome] for outcome in OUTCOMES}
            for name in found
            if found[name] != before.get(name)
        }

    until(lambda: gained() == {"127.0.0.1": {"success_count": 2, "failure_count": 1}}, "two successes, one failure")


def test_each_request_counts_once_without_mutual_tls(tmp_path: Path) -> None:
    """Both proxies see the request in plaintext; only the caller's proxy counts it."""
    with shop_in(tmp_path, "--mtls", "off", servers=PLANNED) as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()
        received = [metrics(shop.ask(f"/namespaces/default/deployments/{server}")) for server in PLANNED]
        for outcome in OUTCOMES:
            assert sum(found[outcome] for found in received) == sum(
                n for (*_, counted), n in shop.truth.items() if counted == outcome
            )


def test_latency_percentiles_are_between_the_servers_and_the_clients_time(shop: ShopMesh) -> None:
    """R84: on a busy machine the client's time is longer than its proxy's."""
    plan = {870: 55, 2020: 38, 4220: 7}
    seconds = shop.send({"thief": {f"slow/200/{wait}": number for wait, number in plan.items()}})["thief"]
    shop.wait_for_agreement()
    found = metrics(shop.ask("/namespaces/default/deployments/slow"))
    took = [wait / 1000 for wait, number in plan.items() for _ in range(number)]
    waited = sorted(second for several in seconds.values() for second in several)
    assert found["success_count"] == len(took) == len(waited) == 100
    for name, share in PERCENTILES.items():
        rank = math.ceil(share * 100) - 1
        assert took[rank] * 0.95 <= found[name] <= waited[rank] * 1.05  # buckets round latencies by at most 5 %


def wait_for_checkpoint(shop: ShopMesh) -> None:
    """Send requests and wait until a checkpoint has all that was counted before, also the counts of ended pods."""

    def wait_for_next(before: int) -> None:
        shop.send({"buyer": {"bank/200/0": 1}})
        until(lambda: (shop.mesh.state / "traffic.msgpack").stat().st_mtime_ns > before, "a checkpoint")

    wait_for_next(time.time_ns())  # it may have begun before
    wait_for_next(time.time_ns())


def test_a_killed_and_restarted_headgate_has_all_counts(shop: ShopMesh) -> None:
    """Running pods report again what the killed process had received after its last checkpoint (docs/tasks/metrics.md)."""
    wait_for_checkpoint(shop)
    shop.send(PLAN)
    shop.mesh.kill()
    shop.send(PLAN)
    shop.mesh.start()
    shop.send(PLAN)
    shop.wait_for_agreement()
    shop.mesh.kill()
    shop.mesh.start()
    shop.wait_for_agreement()


def series(shop: ShopMesh, name: str, query: str = "") -> Any:
    """Return the points of an object since half an hour."""
    start = timestamp(time.time() - 1800)
    path = f"/apis/inspect.headgate.dev/v1beta1/namespaces/default/trafficseries/{name}"
    return shop.mesh.api.call("GET", f"{path}?{query or f'start={start}'}")["status"]["points"]


def test_stored_windows_have_each_request_once_also_after_headgate_was_killed(shop: ShopMesh) -> None:
    """R85, R97: the points of a series, and a window with an end, have the clients' counts."""
    wait_for_checkpoint(shop)
    planned = sum(number for requests in PLAN.values() for call, number in requests.items() if call.startswith("books"))

    def requests() -> int:
        return sum(point["requests"] for point in series(shop, "service.books"))

    shop.wait_for_agreement()
    counted = time.time()
    until(
        lambda: epoch_seconds(series(shop, "service.books")[-1]["endTime"]) > counted, "the window of earlier requests"
    )
    before = requests()
    shop.send(PLAN)
    until(lambda: requests() == before + planned, "a stored window with the requests")
    shop.send(PLAN)
    shop.mesh.kill()
    shop.mesh.start()
    shop.send(PLAN)
    until(lambda: requests() == before + 3 * planned, "stored windows with the requests before and after")
    path = f"{API}/namespaces/default/services/books"
    answer = shop.mesh.api.call("GET", f"{path}?t=10m&end={timestamp(time.time())}")
    start = timestamp(epoch_seconds(answer["timestamp"]) - durations.seconds(answer["window"]))
    points = series(shop, "service.books", f"start={start}&end={answer['timestamp']}")
    failures = sum(point["failures"] for point in points)
    counts = metrics(answer)
    assert (counts["success_count"], counts["failure_count"]) == (
        sum(point["requests"] for point in points) - failures,
        failures,
    )
    with pytest.raises(AssertionError, match="the stored windows begin at"):
        shop.mesh.api.call("GET", f"{path}?end=2020-01-01T00:00:00Z")


def test_replaced_pods_have_reported_all_requests(shop: ShopMesh) -> None:
    """Pods of clients and servers are replaced: each proxy sends a last report before it ends."""
    for app in ("books", *CLIENTS):
        shop.send(PLAN)
        shop.mesh.restart(app)
    shop.send(PLAN)
    shop.wait_for_agreement()


def test_a_killed_proxy_loses_only_the_requests_that_it_had_not_reported(shop: ShopMesh) -> None:
    """Reported counts stay, and the new proxy's requests count. At most two seconds of requests are unreported."""
    shop.send(PLAN)
    shop.wait_for_agreement()
    ((name, pid),) = shop.pids("buyer").items()
    os.kill(pid, signal.SIGKILL)
    until(lambda: shop.pids("buyer").get(name, pid) != pid, "a new sidecar")
    (pod,) = shop.pods("buyer")
    node = f"sidecar/default/{pod['metadata']['name']}"
    until(lambda: '"state":"InSync"' in "".join(shop.mesh.headgate("proxies", node, "-o", "json").stdout.split()))
    shop.mesh.kubectl("wait", "--for=condition=Ready", f"pod/{pod['metadata']['name']}", "--timeout=60s")
    shop.send(PLAN)
    shop.wait_for_agreement()


def test_no_count_is_lost_when_the_counters_of_envoy_are_reset(shop: ShopMesh) -> None:
    """The reset happens while headgate runs: headgate can't detect a reset while it is down."""
    shop.send(PLAN)
    shop.wait_for_agreement()
    for socket in Path(shop.mesh.instance["admin"]).parent.glob("pod-*.sock"):
        shop.mesh.network.run(reset(socket))
    shop.send({"buyer": {"bank/200/0": 3}})
    shop.wait_for_agreement()


async def reset(socket: Path) -> None:
    """Send `POST /reset_counters` to a proxy's admin interface."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.post("http://envoy/reset_counters") as answer,
    ):
        assert answer.status == 200
