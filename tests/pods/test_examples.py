"""The examples of the documentation on a real cluster, applied unchanged with kubectl."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import headgate_program
from tests.draws import fits
from tests.pods.conftest import (
    COMMAND_POLL_S,
    Cluster,
    app_deployment,
    is_deleted,
    mesh_namespace,
    until,
    wait_for_port,
)
from tests.pods.gateway_api import install_gateway_api
from tests.pods.kit import BIN, build_image
from tests.pods.test_gateways import address

EXAMPLES = Path(__file__).parents[2] / "examples"
ROLLOUT, OUTSIDE, BOOKSTORE = "rollout", "examples-outside", "bookstore"
SEND = """
import collections, http.client, json, sys
address, port, host, count, path, *headers = (*sys.argv[1:], "/")[: max(5, len(sys.argv) - 1)]
found = collections.Counter()
for _ in range(int(count)):
    connection = http.client.HTTPConnection(address, int(port), timeout=50)
    connection.request("GET", path, headers={"Host": host} | dict(header.split(": ", 1) for header in headers))
    answer = connection.getresponse()
    words = answer.read().decode().split()
    found[words[0] if answer.status == 200 else answer.status] += 1
    connection.close()
print(json.dumps(found))
"""
"""Sends requests to an address with a Host header: ADDRESS PORT HOST COUNT [PATH [HEADER ...]].

Prints how often each first word of a body came, or each status of a failure."""


@pytest.fixture(scope="module")
def running(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with the rollout of the specification and with the bookstore, each in a namespace of its own."""
    installed = shared_cluster
    build_image("docker.io/library/python:3")
    install_gateway_api(installed)
    installed.apply(
        mesh_namespace(ROLLOUT),
        mesh_namespace(OUTSIDE, injected=False),
        *(app_deployment(place, "client", command=["sleep", "infinity"]) for place in (ROLLOUT, OUTSIDE)),
    )
    installed.kubectl("-n", ROLLOUT, "apply", "-f", EXAMPLES / "foobar-rollout/before", "-f", EXAMPLES / "gateway")
    apply_example(installed, BOOKSTORE, account="buyer")
    installed.wait_rolled_out(OUTSIDE, "client")
    for name in (BOOKSTORE, ROLLOUT):
        wait_for_all(installed, name)
    installed.kubectl("-n", ROLLOUT, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    wait_for_port(address(installed, "edge", ROLLOUT), 8000)
    yield installed
    installed.kubectl("-n", ROLLOUT, "delete", "gateways,httproutes", "--all")


@pytest.fixture
def bookstore(running: Cluster) -> Cluster:
    """A cluster whose bookstore has the split and the access of the example, whatever another test has changed."""
    changed = "trafficsplits,traffictargets,httproutegroups,tlsconfigs"
    running.kubectl("-n", BOOKSTORE, "delete", changed, "--all")
    running.kubectl("-n", BOOKSTORE, "apply", "-f", EXAMPLES / "bookstore")
    running.wait_programmed("trafficsplit/bookstore", BOOKSTORE)
    running.wait_in_sync(BOOKSTORE)
    return running


def apply_example(cluster: Cluster, name: str, *, account: str = "default") -> None:
    """Apply an example in a namespace of its name, and a Deployment whose pods run programs of the tests, with a ServiceAccount."""
    tester = app_deployment(name, "tester", command=["sleep", "infinity"])
    tester["spec"]["template"]["spec"]["serviceAccountName"] = account
    cluster.apply(mesh_namespace(name))
    cluster.kubectl("-n", name, "apply", "-f", EXAMPLES / name)
    cluster.apply(tester)


def wait_for_all(cluster: Cluster, name: str) -> None:
    """Wait until all Deployments of a namespace are rolled out, and their sidecars are in sync."""
    deployments = cluster.get("deployments", name)["items"]
    cluster.wait_rolled_out(name, *(item["metadata"]["name"] for item in deployments))
    cluster.wait_in_sync(name)


@contextmanager
def example(cluster: Cluster, name: str) -> Iterator[None]:
    """Run an example during the block only: its client sends requests all the time."""
    apply_example(cluster, name)
    wait_for_all(cluster, name)
    yield
    cluster.delete_namespaces(name)


def counts(cluster: Cluster, name: str, metric: str, window: str) -> Mapping[str, int]:
    """Return a metric's count for each Deployment of a namespace, over a window such as `30s`."""
    path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{name}/deployments?t={window}"
    items = cluster.api.call("GET", path)["items"]
    return {
        item["resource"]["name"]: int(one["value"])
        for item in items
        for one in item["metrics"]
        if one["name"] == metric
    }


def log(cluster: Cluster, name: str, deployment: str, *, lines: int = 1) -> str:
    """Return the last lines that the application of a Deployment has printed."""
    return cluster.kubectl("-n", name, "logs", f"deployment/{deployment}", "-c", deployment, f"--tail={lines}")


def wait_for_results(cluster: Cluster, **wanted: str) -> None:
    """Wait until the last report of each caller of the bookstore has these results, without counts and versions."""

    def same(caller: str, results: str) -> bool:
        found = re.findall(r"(?:GET|POST): \w+", log(cluster, "bookstore", caller))
        return sorted({re.sub(r"v\d", "v", result) for result in found}) == re.findall(r"\w+: \w+", results)

    for caller, results in wanted.items():
        until(
            lambda caller=caller, results=results: same(caller, results),
            f"{results} of the {caller}",
            poll=COMMAND_POLL_S,
        )


def test_the_canary_gets_a_tenth_of_the_requests(running: Cluster) -> None:
    """R4. The client of the example goes on; the numbers of the metrics API grow by what the tester has sent."""
    with example(running, "canary"):
        assert running.python("canary", "tester", SEND, "website", 8080, "website", 200) == {"v1": 180, "v2": 20}
        until(lambda: counts(running, "canary", "success_count", "15m")["website-v2"] >= 20)
        assert sum(counts(running, "canary", "failure_count", "15m").values()) == 0


def test_the_ab_test_serves_each_group_with_its_version(running: Cluster) -> None:
    """R11. The insider of the example keeps the version that the first answer chose, by a cookie."""
    send, insider = (
        ("tester", SEND, "website", 8080, "website", 100, "/"),
        re.compile(r"^insider: v[12]: \d+$", re.MULTILINE),
    )
    with example(running, "ab-test"):
        assert running.python("ab-test", *send, "User-Agent: Mozilla/5.0 Firefox/140.0") == {"v2": 100}
        assert running.python("ab-test", *send, "User-Agent: curl/8.5.0") == {"v1": 100}
        until(lambda: insider.search(log(running, "ab-test", "client", lines=3)), poll=COMMAND_POLL_S)
        assert sum(counts(running, "ab-test", "failure_count", "15m").values()) == 0


def test_the_bookstore_denies_the_thief_and_serves_the_buyer(bookstore: Cluster) -> None:
    """R70. Then the thief may look at books, and the strict store answers callers with a sidecar only (R74, R75)."""
    steps = EXAMPLES / "bookstore-steps"
    wait_for_results(bookstore, buyer="GET: v POST: v", thief="GET: 403 POST: 403")
    send = ("tester", SEND, "bookstore", 8080, "bookstore", 200, "/books")
    assert bookstore.python("bookstore", *send) == {"v1": 180, "v2": 20}
    bookstore.kubectl("-n", BOOKSTORE, "apply", "-f", steps / "allow-thief.yaml")
    wait_for_results(bookstore, buyer="GET: v POST: v", thief="GET: v POST: 403")
    bookstore.kubectl("-n", BOOKSTORE, "delete", "-f", steps / "allow-thief.yaml")
    bookstore.kubectl("-n", BOOKSTORE, "apply", "-f", steps / "strict.yaml")
    bookstore.wait_programmed("tlsconfig/bookstore", "bookstore")
    wait_for_results(bookstore, buyer="GET: v POST: v", thief="GET: 403 POST: 403")
    with pytest.raises(AssertionError, match=r"ConnectionResetError|RemoteDisconnected"):
        bookstore.python(OUTSIDE, "client", SEND, "bookstore.bookstore", 8080, "bookstore", 1, "/books")


def test_the_workflow_of_the_specification_sends_no_request_to_a_wrong_version(running: Cluster) -> None:
    """R1 to R7: each step of examples/foobar-rollout, counted by the versions that answer one client."""
    steps = EXAMPLES / "foobar-rollout/steps"
    running.kubectl("-n", ROLLOUT, "delete", "--ignore-not-found", "--wait", "-f", steps)
    until(lambda: all(map(is_deleted, running.get("pods", ROLLOUT, "version=v2")["items"])) or None)
    running.wait_in_sync(ROLLOUT)
    send = ("client", SEND, "foobar", 8080, "foobar")
    assert running.python(ROLLOUT, *send, 100) == {"v1": 100}
    expected = {
        "1-split": {"v1": 300},
        "2-foobar-v2": {"v1": 300},
        "3-one-third": {"v1": 200, "v2": 100},
        "4-all": {"v2": 300},
    }
    for step, answers in expected.items():
        running.kubectl("-n", ROLLOUT, "apply", "-f", steps / f"{step}.yaml")
        if step == "2-foobar-v2":
            running.wait_rolled_out(ROLLOUT, "foobar-v2")
        if step != "1-split":  # its status says that foobar-v2 does not exist
            running.wait_programmed("trafficsplit/foobar-rollout", ROLLOUT)
            running.wait_in_sync(ROLLOUT)
        assert running.python(ROLLOUT, *send, 300) == answers


def test_a_gateway_copies_42_percent_of_the_requests(running: Cluster) -> None:
    """R45. The number of copies is random (tests/draws.py)."""
    running.kubectl("-n", ROLLOUT, "apply", "-f", EXAMPLES / "foobar-rollout/steps/2-foobar-v2.yaml")
    running.wait_rolled_out(ROLLOUT, "foobar-v2")
    running.wait_in_sync(ROLLOUT)
    mirror = {"backendRef": {"name": "foobar-v2", "port": 8080}, "percent": 42}
    rule = {
        "backendRefs": [{"name": "foobar-v1", "port": 8080}],
        "filters": [{"type": "RequestMirror", "requestMirror": mirror}],
    }
    running.apply(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "mirror", "namespace": ROLLOUT},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["mirror.example"], "rules": [rule]},
        }
    )
    running.wait_programmed("httproute/mirror", ROLLOUT)
    before = requests_of_v2(running)
    answers = running.python(OUTSIDE, "client", SEND, address(running, "edge", ROLLOUT), 8000, "mirror.example", 1000)
    assert answers == {"v1": 1000}
    until(lambda: fits(requests_of_v2(running) - before, 0.42, of=1000), "the copies")
    running.wait_in_sync(ROLLOUT)  # meanwhile the last copies arrive
    assert fits(requests_of_v2(running) - before, 0.42, of=1000)


def requests_of_v2(cluster: Cluster) -> int:
    """Return the number of requests that the pods of version v2 have logged."""
    logs = cluster.kubectl("-n", ROLLOUT, "logs", "-l", "version=v2", "-c", "foobar", "--tail=-1")
    return len(logs.splitlines())


class PlanReader:
    """Runs commands as the reader of a page does, with a kubeconfig whose context has a namespace."""

    def __init__(self, cluster: Cluster, place: str, directory: Path) -> None:
        self._cluster = cluster
        self._config = directory / "kubeconfig"
        config = json.loads(cluster.kubectl("config", "view", "--minify", "--raw", "-o", "json"))
        config["contexts"][0]["context"]["namespace"] = place
        self._config.write_text(json.dumps(config))

    def run(self, *command: object, code: int = 0) -> str:
        """Run a program, which must end with an exit code; return its output."""
        printed = self._cluster.run(
            "sh", "-c", '"$@" 2>&1; echo "exit code $?"', "sh", "env", f"KUBECONFIG={self._config}", *command
        )
        assert printed.endswith(f"exit code {code}\n"), printed
        return printed

    def headgate(self, *arguments: object, code: int = 0) -> str:
        """Run headgate."""
        return self.run(*headgate_program.command(), *arguments, code=code)

    def kubectl(self, *arguments: object) -> str:
        """Run kubectl."""
        return self.run(BIN / "kubectl", *arguments)


def test_a_change_of_the_bookstore_is_planned_warned_about_recorded_and_undone(
    bookstore: Cluster, tmp_path: Path
) -> None:
    """docs/tasks/review.md on a cluster. The manifests name no namespace, so each command uses that of the context."""
    reader, changes = PlanReader(bookstore, BOOKSTORE, tmp_path), EXAMPLES / "review/changes"
    half, inventory = changes / "half.yaml", changes / "inventory.yaml"
    moves = "40% of them from bookstore/bookstore-v1:8080 to bookstore/bookstore-v2:8080"
    assert "nothing changes" in reader.headgate("plan", "-f", EXAMPLES / "bookstore")
    plan = reader.headgate("plan", "-f", half, code=1)
    assert "Service bookstore/bookstore:8080: all requests" in plan
    assert moves in plan
    checks = ("--no-new-access", "--never", "serviceaccount/thief", "serviceaccount/database")
    assert reader.headgate("plan", "-f", half, *checks).count("holds: ") == 2
    assert "does not hold: no new access" in reader.headgate("plan", "-f", inventory, *checks, code=1)
    until(lambda: "bookstore/thief may send" in reader.kubectl("apply", "--dry-run=server", "-f", inventory))

    warning = f"Warning: effect on requests and access: Service bookstore/bookstore:8080: all requests: {moves}"
    until(lambda: warning in reader.kubectl("apply", "--dry-run=server", "-f", half))  # a busy replica omits it
    reader.kubectl("apply", "-f", half)
    reader.headgate("plan", "-f", half)
    found = until(lambda: _revision_with(reader, "trafficsplit/bookstore", moves))
    assert "bookstore-v1" in reader.headgate("history", found["revision"])
    dry = reader.headgate("rollback", found["revision"] - 1, "trafficsplit/bookstore", "--dry-run")
    assert "weight: 90" in dry
    reader.headgate("rollback", found["revision"] - 1, "trafficsplit/bookstore")
    assert moves in reader.headgate("plan", "-f", half, code=1)


def test_rules_from_traffic_on_a_cluster_close_the_thief_out(bookstore: Cluster, tmp_path: Path) -> None:
    """docs/tasks/access-from-traffic.md: the audit refuses nothing, and names the calls that the rules would refuse."""
    reader, rules = PlanReader(bookstore, BOOKSTORE, tmp_path), tmp_path / "rules"
    reader.kubectl("annotate", "traffictargets", "--all", "headgate.dev/mode=audit")
    until(
        lambda: re.search(r"^bookstore +8080 +HTTP +bookstore/thief +[1-9]", _audit(reader), re.MULTILINE),
        poll=COMMAND_POLL_S,
    )
    generate = (
        "generate",
        "traffictargets",
        "--from-traffic",
        "168h",
        "--exclude",
        f"{BOOKSTORE}/thief",
        "--output-dir",
        rules,
    )
    until(lambda: "3 TrafficTargets allow" in reader.headgate(*generate), poll=COMMAND_POLL_S)
    reader.kubectl("apply", "-f", rules)
    reader.kubectl("delete", "traffictarget", "buyer-to-bookstore", "bookstore-to-warehouse", "warehouse-to-database")
    until(lambda: set(_results(bookstore, "thief")) == {"GET: 403", "POST: 403"}, poll=COMMAND_POLL_S)
    until(
        lambda: {result[:-1] for result in _results(bookstore, "buyer")} == {"GET: v", "POST: v"}, poll=COMMAND_POLL_S
    )
    assert "does not hold" in reader.headgate("plan", "-f", EXAMPLES / "bookstore-steps", "--no-new-access", code=1)


def _revision_with(reader: PlanReader, name: str, effect: str) -> Any:
    printed = reader.headgate("history", name, "-o", "json").rpartition("exit code")[0]
    return next((item for item in json.loads(printed)["items"] if effect in "".join(item["effectMessages"])), None)


def _audit(reader: PlanReader) -> str:
    return reader.run(BIN / "kubectl-traffic", "audit")


def _results(cluster: Cluster, caller: str) -> list[str]:
    return re.findall(r"(?:GET|POST): \w+", log(cluster, BOOKSTORE, caller))
