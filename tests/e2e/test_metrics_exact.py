"""What headgate says of traffic is what the clients counted, whatever happens in between (R83 to R97)."""

import contextlib
import json
import math
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.manifests import service
from tests.e2e.wire import Address, Request
from tests.e2e.world import World, until, world_in_a_new_directory

HERE = Path(__file__).parent
PORTS = {"http": 8080}
API = "/apis/traffic.metrics.k8s.io/v1beta1"
CLIENTS, SERVERS = ("buyer", "thief"), ("books", "bank", "mail", "slow", "open")
OUTCOMES = ("success_count", "failure_count")
PERCENTILES = {"p50_response_latency": 0.5, "p90_response_latency": 0.9, "p99_response_latency": 0.99}
UNITS = {"m": 1e-3, "u": 1e-6, "": 1.0}


def deployment(name: str, program: str, replicas: int, **environment: str) -> str:
    container = {
        "name": "app",
        "image": "python:3",
        "command": [sys.executable, "-E", "-s", "-S", str(HERE / program)],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "ports": [{"name": "http", "containerPort": 8080}] if program == "faulty.py" else [],
    }
    pod = {"containers": [container], "terminationGracePeriodSeconds": 10}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    if program == "caller.py":  # two of them would both do what one is told
        spec["strategy"] = {"type": "Recreate"}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})


class Shop:
    """Two clients and three Services, one of them of two pods; `truth` is what the clients saw, by client and server."""

    def __init__(self, world: World, root: Path) -> None:
        self.world = world
        self.truth: Counter[tuple[str, str, str]] = Counter()
        self._root = root
        self._number = Counter[str]()

    def send(self, plan: Mapping[str, Mapping[str, int]]) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Let each client send requests, by server and path; return how long each took. All must be answered as asked."""
        done = {}
        for client, paths in plan.items():
            place = self._root / client / str(self._number[client])
            self._number[client] += 1
            wanted = {f"http://{path.replace('/', ':8080/', 1)}": number for path, number in paths.items()}
            place.with_suffix(".new").write_text(json.dumps(wanted))
            place.with_suffix(".new").rename(place.with_suffix(".json"))
            done[client] = place.with_suffix(".done")
        seconds = {}
        for client, path in done.items():
            until(path.exists, f"the requests of {client}", 90)
            found = json.loads(path.read_text())
            for text, number in found["answers"].items():
                url, status = text.split()
                host, told, _ = url.removeprefix("http://").split("/")
                assert status == told, found["answers"]
                outcome = "failure_count" if int(status) >= 500 else "success_count"
                self.truth[client, host.partition(":")[0], outcome] += number
            seconds[client] = {
                url.removeprefix("http://").replace(":8080", "", 1): took for url, took in found["seconds"].items()
            }
        return seconds

    def ask(self, path: str, window: str = "15m") -> Any:
        return self.world.api.call("GET", f"{API}{path}?t={window}")

    def counted(self) -> Counter[tuple[str, str, str]]:
        """Return what headgate says, in the form of `truth`."""
        found: Counter[tuple[str, str, str]] = Counter()
        for client in CLIENTS:
            for edge in self.ask(f"/namespaces/default/deployments/{client}/edges")["items"]:
                peer = edge["edge"]["resource"]
                assert edge["edge"]["direction"] == "to"
                for name, value in metrics(edge).items():
                    if name.endswith("_count") and value:
                        found[client, peer["name"], name] += int(value)
        return found

    def wait_for_agreement(self) -> None:
        """Wait until headgate says what the clients counted; they count faster than proxies report."""

        def same() -> bool:
            found = self.counted()
            assert found == self.truth, f"too many: {found - self.truth}, too few: {self.truth - found}"
            return True

        until(same, "the truth")

    def pids(self, app: str) -> Mapping[str, int]:
        """Return the sidecars of a Deployment's pods."""
        uids = {pod["metadata"]["uid"] for pod in self.pods(app)}
        return {name: pid for name, pid in self.world.sidecars().items() if name.rpartition("_")[2] in uids}

    def pods(self, app: str) -> Sequence[Any]:
        return [pod for pod in self.world.get("pods")["items"] if pod["metadata"]["labels"].get("app") == app]


def metrics(item: Any) -> Mapping[str, float]:
    """Return the numbers of a TrafficMetrics; latencies in seconds."""
    found = {}
    for metric in item["metrics"]:
        digits = metric["value"].rstrip("mu")
        found[metric["name"]] = float(digits) * UNITS[metric["value"][len(digits) :]]
    return found


@contextlib.contextmanager
def shop_in(root: Path, *options: str) -> Iterator[Shop]:
    manifests = {}
    for client in CLIENTS:
        (root / client).mkdir()
        manifests[f"{client}.yaml"] = deployment(client, "caller.py", 1, PLANS=str(root / client))
    for server in SERVERS:
        pods = deployment(server, "faulty.py", 2 if server == "books" else 1)
        manifests[f"{server}.yaml"] = f"{service(server, PORTS, selector={'app': server})}\n---\n{pods}"
    with world_in_a_new_directory(*options, manifests=manifests) as world:
        yield Shop(world, root)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_in(tmp_path_factory.mktemp("plans")) as found:
        yield found


PLAN = {
    "buyer": {"books/200/0": 70, "books/503/1": 7, "bank/200/2": 41, "bank/500/0": 9, "mail/404/0": 5},
    "thief": {"books/200/0": 30, "bank/403/0": 13, "mail/500/0": 11},
}


def test_every_request_counts_once_between_the_pods_that_sent_and_answered_it(shop: Shop) -> None:
    """R86, R89, R97: a Deployment has what its pods have, and both ends of an edge say the same."""
    shop.send(PLAN)
    shop.wait_for_agreement()
    received: Counter[tuple[str, str]] = Counter()
    for (_, server, what), number in shop.truth.items():
        received[server, what] += number
    for server in ("books", "bank", "mail"):
        found = metrics(shop.ask(f"/namespaces/default/deployments/{server}"))
        assert {what: found[what] for what in OUTCOMES} == {what: received[server, what] for what in OUTCOMES}
    for client in CLIENTS:
        (pod,) = shop.pods(client)
        sent = edges(shop, pod, "to")
        assert sent
        for server in (pod for app in SERVERS for pod in shop.pods(app)):
            assert edges(shop, server, "from").get(name_of(pod)) == sent.get(name_of(server))


def name_of(pod: Any) -> str:
    return str(pod["metadata"]["name"])


def edges(shop: Shop, pod: Any, direction: str) -> Mapping[str, Mapping[str, float]]:
    """Return the metrics of a pod's edges by the other pod."""
    items = shop.ask(f"/namespaces/default/pods/{name_of(pod)}/edges")["items"]
    return {item["edge"]["resource"]["name"]: metrics(item) for item in items if item["edge"]["direction"] == direction}


def test_who_has_no_proxy_is_seen_where_he_arrives(shop: Shop) -> None:
    """R96: by his address, and by nobody twice."""
    (pod,) = shop.pods("open")
    before = edges(shop, pod, "from")
    for status in (200, 503, 200):
        answer = shop.world.ask(Request(Address(pod["status"]["podIP"], 8080), target=f"/{status}/0"))
        assert answer.status == status
    none = dict.fromkeys(OUTCOMES, 0.0)

    def gained() -> Mapping[str, Mapping[str, float]]:
        found = edges(shop, pod, "from")
        return {
            name: {what: found[name][what] - before.get(name, none)[what] for what in OUTCOMES}
            for name in found
            if found[name] != before.get(name)
        }

    until(lambda: gained() == {"127.0.0.1": {"success_count": 2, "failure_count": 1}}, "two successes, one failure")


def test_without_mutual_tls_a_request_counts_once_too(tmp_path: Path) -> None:
    """Both proxies see it in plaintext then; the caller's counts."""
    with shop_in(tmp_path, "--mtls", "off") as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()
        received = [metrics(shop.ask(f"/namespaces/default/deployments/{server}")) for server in SERVERS]
        for what in OUTCOMES:
            assert sum(found[what] for found in received) == sum(
                n for (*_, told), n in shop.truth.items() if told == what
            )


def test_percentiles_are_between_what_the_server_took_and_what_the_client_waited(shop: Shop) -> None:
    """R84: the two are the same, but on a busy machine, where the client waits longer than its proxy."""
    plan = {870: 55, 2020: 38, 4220: 7}
    seconds = shop.send({"thief": {f"slow/200/{wait}": number for wait, number in plan.items()}})["thief"]
    shop.wait_for_agreement()
    found = metrics(shop.ask("/namespaces/default/deployments/slow"))
    took = [wait / 1000 for wait, number in plan.items() for _ in range(number)]
    waited = sorted(second for several in seconds.values() for second in several)
    assert found["success_count"] == len(took) == len(waited) == 100
    for name, share in PERCENTILES.items():
        place = math.ceil(share * 100) - 1
        assert took[place] * 0.95 <= found[name] <= waited[place] * 1.05  # what stands for a bucket is 5 % off at most


def test_a_headgate_that_is_killed_and_started_again_has_missed_nothing(shop: Shop) -> None:
    shop.send(PLAN)
    shop.world.kill()
    shop.send(PLAN)
    shop.world.start()
    shop.send(PLAN)
    shop.wait_for_agreement()
    shop.world.kill()
    shop.world.start()
    shop.wait_for_agreement()


def test_pods_that_are_replaced_have_reported_everything_before(shop: Shop) -> None:
    """Clients and servers: their proxies end after their last report."""
    for app in ("books", *CLIENTS):
        shop.send(PLAN)
        shop.world.kubectl("rollout", "restart", f"deployment/{app}")
        shop.world.kubectl("rollout", "status", f"deployment/{app}", "--timeout=60s")
    shop.send(PLAN)
    shop.wait_for_agreement()


def test_a_proxy_that_is_killed_takes_with_it_what_it_had_not_reported_and_no_more(shop: Shop) -> None:
    """What was reported stays, and what comes after counts; between the two are two seconds at most."""
    shop.send(PLAN)
    shop.wait_for_agreement()
    ((name, pid),) = shop.pids("buyer").items()
    os.kill(pid, signal.SIGKILL)
    until(lambda: shop.pids("buyer").get(name, pid) != pid, "another sidecar")
    (pod,) = shop.pods("buyer")
    shop.world.kubectl("wait", "--for=condition=Ready", f"pod/{pod['metadata']['name']}", "--timeout=60s")
    shop.send(PLAN)
    shop.wait_for_agreement()


def test_counters_that_are_reset_do_not_matter(shop: Shop) -> None:
    """As long as headgate is there: whether it was killed before it knew, nobody can tell afterwards."""
    shop.send(PLAN)
    shop.wait_for_agreement()
    for socket in Path(shop.world.instance["admin"]).parent.glob("pod-*.sock"):
        shop.world.network.run(reset(socket))
    shop.send({"buyer": {"bank/200/0": 3}})
    shop.wait_for_agreement()


async def reset(socket: Path) -> None:
    """`POST /reset_counters` to a proxy's admin page."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
        session.post("http://envoy/reset_counters") as answer,
    ):
        assert answer.status == 200
