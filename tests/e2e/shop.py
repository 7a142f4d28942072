"""Clients in pods that send planned requests, and their counts."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.manifests import HTTP_PORT, program_deployment, service_manifest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.waiting import until

API = "/apis/traffic.metrics.k8s.io/v1beta1"
CLIENTS, SERVERS = ("buyer", "thief"), ("books", "bank", "mail", "slow", "open")
PLANNED = SERVERS[:3]
"""The servers that `PLAN` calls."""
UNITS = {"m": 1e-3, "u": 1e-6, "": 1.0}
OUTCOMES = ("success_count", "failure_count")


class ShopMesh:
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
                url, status = text.split(maxsplit=1)
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


@contextlib.contextmanager
def shop_in(root: Path, *options: str, servers: Sequence[str] = SERVERS) -> Iterator[ShopMesh]:
    """Run the clients and servers in a new mesh with options of `headgate up`; `root` has the clients' plans."""
    manifests = {}
    for client in CLIENTS:
        (root / client).mkdir()
        manifests[f"{client}.yaml"] = program_deployment(client, "caller.py", PLANS=str(root / client))
    for server in servers:
        pods = program_deployment(server, "faulty.py", replicas=2 if server == "books" else 1)
        manifests[f"{server}.yaml"] = f"{service_manifest(server, HTTP_PORT, selector={'app': server})}\n---\n{pods}"
    with mesh_in_a_new_directory(*options, manifests=manifests) as mesh:
        yield ShopMesh(mesh, root)


PLAN = {
    "buyer": {"books/200/0": 70, "books/503/1": 7, "bank/200/2": 41, "bank/500/0": 9, "mail/404/0": 5},
    "thief": {"books/200/0": 30, "bank/403/0": 13, "mail/500/0": 11},
}


def metrics(item: Any) -> Mapping[str, float]:
    """Return the values of a TrafficMetrics by name; latencies in seconds."""
    found = {}
    for metric in item["metrics"]:
        digits = metric["value"].rstrip("mu")
        found[metric["name"]] = float(digits) * UNITS[metric["value"][len(digits) :]]
    return found
