"""examples/bookstore as a user runs it: which callers the TrafficTargets allow and deny (R68 to R70, R74)."""

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.bookstore import ALLOWED, BOOKSTORE, DENIED, EXAMPLES, last_results
from tests.e2e.metrics_api import SEED, ask, counts
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.waiting import until
from tests.wire import Address

STEPS = EXAMPLES / "bookstore-steps"
ACCOUNTS = "spiffe://cluster.local/ns/default/sa"


@pytest.fixture(scope="module")
def bookstore() -> Iterator[RunningMesh]:
    with mesh_in_a_new_directory(manifests=BOOKSTORE) as mesh:
        yield mesh


def wait_for_report(mesh: RunningMesh, deployment: str) -> None:
    """Wait for two more log lines of a Deployment: the first one may include earlier requests."""
    before = len(mesh.log(deployment))
    until(lambda: len(mesh.log(deployment)) > before + 1, "the next report")


def first_bytes(address: Address) -> bytes:
    """Send a request in plaintext; return the beginning of the answer."""
    with socket.create_connection(address, timeout=60) as plain:
        plain.sendall(b"GET /books HTTP/1.1\r\nHost: bookstore\r\n\r\n")
        try:
            return plain.recv(100)
        except ConnectionResetError:
            return b""


def test_the_thief_is_denied_and_counted_as_denied_until_a_traffic_target_allows_it(bookstore: RunningMesh) -> None:
    """R68, R103: a denied request counts neither as success nor as failure, in the API and in `kubectl traffic`."""
    until(lambda: last_results(bookstore, "buyer") == ALLOWED, "the buyer buys")
    until(lambda: last_results(bookstore, "thief") == DENIED, "the thief is denied")

    def denied() -> bool:
        (thief, buyer) = (request_counts(bookstore, name) for name in ("thief", "buyer"))
        assert thief["success_count"] == thief["failure_count"] == buyer["denied_count"] == 0
        return thief["denied_count"] > 0 and buyer["success_count"] > 0

    until(denied, "the thief's requests are denied, and the buyer's succeed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": bookstore.ready["kubeconfig"], "PATH": path}
    command = [sys.executable, "-m", "headgate.cli.traffic", "edges", "deployment/thief", "-o", "wide"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"SUCCESS", "DENIED", "SECURED", "CLIENT_ID", "SERVER_ID"} <= set(shown[0].split())
    for line in shown[1:]:
        assert line.split()[:3] == ["to", line.split()[1], "-"]
        assert line.split()[-3:] == ["yes", f"{ACCOUNTS}/thief", f"{ACCOUNTS}/bookstore"]

    bookstore.apply((STEPS / "allow-thief.yaml").read_text())
    until(lambda: last_results(bookstore, "thief") == {"GET: v", "POST: 403"}, "the thief reads")
    bookstore.delete("traffictarget/thief-to-bookstore")
    until(lambda: last_results(bookstore, "thief") == DENIED, "the thief is denied again")
    until(lambda: last_results(bookstore, "buyer") == ALLOWED, "the buyer still buys")


def request_counts(mesh: RunningMesh, deployment: str) -> Counter[str]:
    """Return the counts of all requests that a Deployment sent, by result."""
    items = ask(mesh, f"{SEED}/namespaces/default/deployments/{deployment}/edges")["items"]
    return sum((Counter(counts(item)) for item in items), Counter())


def test_a_strict_bookstore_does_not_answer_callers_in_plaintext(bookstore: RunningMesh) -> None:
    until(lambda: last_results(bookstore, "buyer") == ALLOWED, "the buyer buys")
    pod = next(pod for pod in bookstore.get("pods")["items"] if pod["metadata"]["labels"]["app"] == "bookstore")
    address = Address(pod["status"]["podIP"], 8080)
    assert first_bytes(address).startswith(b"HTTP/1.1 403 ")
    bookstore.apply((STEPS / "strict.yaml").read_text())
    until(lambda: first_bytes(address) == b"", "plaintext gets no answer")
    wait_for_report(bookstore, "buyer")
    until(lambda: last_results(bookstore, "buyer") == ALLOWED, "the buyer still buys")
