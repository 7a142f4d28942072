"""The metrics API has the same counts as the clients, also after restarts and rollouts (R83 to R97)."""

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
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.waiting import until
from tests.wire import Address, Request

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
    if program == "caller.py":  # during a rolling update, two pods would carry out the same plan
        spec["strategy"] = {"type": "Recreate"}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})


class Shop:
    """Two clients and several Services; `truth` has the clients' counts by client, server and outcome."""

    def __init__(self, mesh: RunningMesh, root: Path) -> None:
        self.mesh = mesh
        self.truth: Counter[tuple[str, str, str]] = Counter()
        self._root = root
        self._number = Counter[str]()

    def send(self, plan: Mapping[str, Mapping[str, int]]) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Send the planned number of requests by client and `server/status/delay`; return the durations in seconds.

        Asserts that each answer has the planned status.
        """
        done = {}
        for client, paths in plan.items():
            plan_file = self._root / client / str(self._number[client])
            self._number[client] += 1
            wanted = {f"http://{path.replace('/', ':8080/', 1)}": number for path, number in paths.items()}
            plan_file.with_suffix(".new").write_text(json.dumps(wanted))
            plan_file.with_suffix(".new").rename(plan_file.with_suffix(".json"))
            done[client] = plan_file.with_suffix(".done")
        seconds = {}
        for client, path in done.items():
            until(path.exists, f"the requests of {client}", 90)
            found = json.loads(path.read_text())
            for text, number in found["answers"].items():
                url, status = text.split()
                host, planned, _ = url.removeprefix("http://").split("/")
                assert status == planned, found["answers"]
                outcome = "failure_count" if int(status) >= 500 else "success_count"
                self.truth[client, host.partition(":")[0], outcome] += number
            seconds[client] = {
                url.removeprefix("http://").replace(":8080", "", 1): took for url, took in found["seconds"].items()
            }
        return seconds

    def ask(self, path: str, window: str = "2h") -> Any:
        return self.mesh.api.call("GET", f"{API}{path}?t={window}")

    def counted(self) -> Counter[tuple[str, str, str]]:
        """Return the counts of the metrics API by client, server and outcome, as in `truth`."""
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
        """Wait until the metrics API has the clients' counts; reports of proxies arrive after a delay."""

        def same() -> bool:
            found = self.counted()
            assert found == self.truth, f"too many: {found - self.truth}, too few: {self.truth - found}"
            return True

        until(same, "the clients' counts")

    def pids(self, app: str) -> Mapping[str, int]:
        """Return the process IDs of the sidecars of a Deployment's pods."""
        uids = {pod["metadata"]["uid"] for pod in self.pods(app)}
        return {name: pid for name, pid in self.mesh.sidecars().items() if name.rpartition("_")[2] in uids}

    def pods(self, app: str) -> Sequence[Any]:
        return [pod for pod in self.mesh.get("pods")["items"] if pod["metadata"]["labels"].get("app") == app]


def metrics(item: Any) -> Mapping[str, float]:
    """Return the values of a TrafficMetrics by name; latencies in seconds."""
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
    with mesh_in_a_new_directory(*options, manifests=manifests) as mesh:
        yield Shop(mesh, root)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_in(tmp_path_factory.mktemp("plans")) as found:
        yield found


PLAN = {
    "buyer": {"books/200/0": 70, "books/503/1": 7, "bank/200/2": 41, "bank/500/0": 9, "mail/404/0": 5},
    "thief": {"books/200/0": 30, "bank/403/0": 13, "mail/500/0": 11},
}


def test_each_request_counts_once_on_the_edge_between_client_and_server(shop: Shop) -> None:
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


def edges(shop: Shop, pod: Any, direction: str) -> Mapping[str, Mapping[str, float]]:
    """Return the metrics of a pod's edges in a direction, by peer."""
    items = shop.ask(f"/namespaces/default/pods/{name_of(pod)}/edges")["items"]
    return {item["edge"]["resource"]["name"]: metrics(item) for item in items if item["edge"]["direction"] == direction}


def test_the_server_counts_a_client_without_a_proxy_by_the_clients_address(shop: Shop) -> None:
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
    with shop_in(tmp_path, "--mtls", "off") as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()
        received = [metrics(shop.ask(f"/namespaces/default/deployments/{server}")) for server in SERVERS]
        for outcome in OUTCOMES:
            assert sum(found[outcome] for found in received) == sum(
                n for (*_, counted), n in shop.truth.items() if counted == outcome
            )


def test_latency_percentiles_are_between_the_servers_and_the_clients_time(shop: Shop) -> None:
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


def test_a_killed_and_restarted_headgate_has_all_counts(shop: Shop) -> None:
    shop.send(PLAN)
    shop.mesh.kill()
    shop.send(PLAN)
    shop.mesh.start()
    shop.send(PLAN)
    shop.wait_for_agreement()
    shop.mesh.kill()
    shop.mesh.start()
    shop.wait_for_agreement()


def test_replaced_pods_have_reported_all_requests(shop: Shop) -> None:
    """Pods of clients and servers are replaced: each proxy sends a last report before it ends."""
    for app in ("books", *CLIENTS):
        shop.send(PLAN)
        shop.mesh.kubectl("rollout", "restart", f"deployment/{app}")
        shop.mesh.kubectl("rollout", "status", f"deployment/{app}", "--timeout=60s")
    shop.send(PLAN)
    shop.wait_for_agreement()


def test_a_killed_proxy_loses_only_the_requests_that_it_had_not_reported(shop: Shop) -> None:
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


def test_no_count_is_lost_when_the_counters_of_envoy_are_reset(shop: Shop) -> None:
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
