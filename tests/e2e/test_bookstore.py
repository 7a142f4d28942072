"""examples/bookstore as its reader runs it: who is refused, who is let in, and by which object (R68 to R70, R74)."""

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.test_metrics_users import SEED, ask, counts
from tests.e2e.wire import Address
from tests.e2e.world import World, until

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = EXAMPLES / "bookstore-steps"
ACCOUNTS = "spiffe://cluster.local/ns/default/sa"


@pytest.fixture
def bookstore(new_world: Callable[..., World]) -> World:
    return new_world(manifests={path.name: path.read_text() for path in (EXAMPLES / "bookstore").glob("*.yaml")})


def told(world: World, who: str) -> set[str]:
    """Return what came of the visits in somebody's last report, without numbers: `GET: v`, `POST: 403`."""
    last = world.kubectl("logs", f"deployment/{who}", "--tail=1")
    return {re.sub(r"v\d", "v", what) for what in re.findall(r"(?:GET|POST): \w+", last)}


def report(world: World, who: str) -> None:
    """Wait for somebody's next report but one: the first may still tell of before."""
    before = len(world.kubectl("logs", f"deployment/{who}").splitlines())
    until(lambda: len(world.kubectl("logs", f"deployment/{who}").splitlines()) > before + 1, "the next report")


def first_bytes(address: Address) -> bytes:
    """Ask in plaintext, without an identity."""
    with socket.create_connection(address, timeout=10) as plain:
        plain.sendall(b"GET /books HTTP/1.1\r\nHost: bookstore\r\n\r\n")
        try:
            return plain.recv(100)
        except ConnectionResetError:
            return b""


def test_the_buyer_buys_by_three_hops_and_the_thief_is_refused_until_he_is_named(bookstore):
    until(lambda: told(bookstore, "buyer") == {"GET: v", "POST: v"}, "the buyer buys")
    until(lambda: told(bookstore, "thief") == {"GET: 403", "POST: 403"}, "the thief is refused")
    bookstore.apply((STEPS / "allow-thief.yaml").read_text())
    report(bookstore, "thief")
    assert told(bookstore, "thief") == {"GET: v", "POST: 403"}
    bookstore.delete("traffictarget/thief-to-bookstore")
    bookstore.settle()
    report(bookstore, "thief")
    assert told(bookstore, "thief") == {"GET: 403", "POST: 403"}
    assert told(bookstore, "buyer") == {"GET: v", "POST: v"}


def test_the_thief_shows_as_refused_and_the_buyer_as_served(bookstore):
    """R68, R103: a refusal is no success; the same in the API and in `kubectl traffic`."""

    def denied() -> bool:
        (thief, buyer) = (exchanged(bookstore, who) for who in ("thief", "buyer"))
        assert thief["success_count"] == thief["failure_count"] == buyer["denied_count"] == 0
        return thief["denied_count"] > 0 and buyer["success_count"] > 0

    until(denied, "the thief is refused, and the buyer served")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": bookstore.ready["kubeconfig"], "PATH": path}
    command = [sys.executable, "-m", "headgate.plugin", "edges", "deployment/thief", "-o", "wide"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"SUCCESS", "DENIED", "SECURED", "CLIENT_ID", "SERVER_ID"} <= set(shown[0].split())
    for line in shown[1:]:
        assert line.split()[:3] == ["to", line.split()[1], "-"]
        assert line.split()[-3:] == ["yes", f"{ACCOUNTS}/thief", f"{ACCOUNTS}/bookstore"]


def exchanged(world: World, who: str) -> Counter[str]:
    """Return what came of everything that a Deployment sent to others."""
    items = ask(world, f"{SEED}/namespaces/default/deployments/{who}/edges")["items"]
    return sum((Counter(counts(item)) for item in items), Counter())


def test_a_strict_bookstore_does_not_hear_who_has_no_identity(bookstore):
    until(lambda: told(bookstore, "buyer") == {"GET: v", "POST: v"}, "the buyer buys")
    pod = next(pod for pod in bookstore.get("pods")["items"] if pod["metadata"]["labels"]["app"] == "bookstore")
    address = Address(pod["status"]["podIP"], 8080)
    assert first_bytes(address).startswith(b"HTTP/1.1 403 ")
    bookstore.apply((STEPS / "strict.yaml").read_text())
    until(lambda: first_bytes(address) == b"", "plaintext is not answered")
    report(bookstore, "buyer")
    assert told(bookstore, "buyer") == {"GET: v", "POST: v"}
