"""Strict mutual TLS on a real cluster, observed on the network interfaces of the node."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    active_pod,
    app_deployment,
    held,
    holding,
    http_service,
    kill_program,
    mesh_namespace,
    program,
    until,
    wait_replicas,
)
from tests.pods.kit import node_exec
from tests.pods.load import failures, load

from headgate.kubernetes.names import XDS_PORT

BANK, OUTSIDE = "bank", "bank-outside"
SNIFF = """
import select, socket, sys
texts = [text.encode() for text in sys.argv[1:]]
found = dict.fromkeys(sys.argv[1:], 0)
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
    packets.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE: a busy machine reads late
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0] or select.select([packets], [], [], 0)[0]:
        if select.select([packets, sys.stdin], [], [])[0] != [sys.stdin]:
            packet = packets.recv(65536)
            for text in texts:
                found[text.decode()] += text in packet
import json
print(json.dumps(found))
"""
"""Counts the packets of all network interfaces that contain each text, until the standard input ends."""
SEND = """
import http.client, json, sys
host, path = sys.argv[1:]
results = []
for _ in range(20):
    connection = http.client.HTTPConnection(host, 8080, timeout=50)
    try:
        connection.request("GET", path)
        results.append(connection.getresponse().status)
    except OSError as error:
        results.append(type(error).__name__)
    connection.close()
print(json.dumps(results))
"""
"""Sends requests to a host with a path, and prints the statuses and the types of the errors."""


@pytest.fixture(scope="module")
def bank(disturbed: Cluster) -> Cluster:
    """A namespace in which mutual TLS is strict, and one without sidecars. Both have a server and a client."""
    disturbed.apply(mesh_namespace(BANK), mesh_namespace(OUTSIDE, injected=False))
    server = held(app_deployment(BANK, "accounts"))
    del server["spec"]["template"]["spec"]["containers"][0]["ports"]  # only the Service names the port
    for place in (BANK, OUTSIDE):
        disturbed.apply(
            http_service(place, "accounts", app="accounts"),
            server if place == BANK else app_deployment(place, "accounts"),
            app_deployment(place, "client", command=["sleep", "infinity"]),
        )
    disturbed.apply(
        {
            "apiVersion": "headgate.dev/v1beta1",
            "kind": "TLSConfig",
            "metadata": {"name": "strict", "namespace": BANK},
            "spec": {"selector": {"matchLabels": {}}},
        }
    )
    for place in (BANK, OUTSIDE):
        disturbed.wait_rolled_out(place, "accounts", "client")
    disturbed.wait_programmed("tlsconfig/strict", BANK)
    disturbed.wait_in_sync(BANK)
    until(lambda: {*disturbed.python(OUTSIDE, "client", SEND, "accounts", "/")} == {200}, "nodes know the Service")
    return disturbed


@contextmanager
def sniffer(*texts: str) -> Iterator[dict[str, int]]:
    """Count the packets in the node that contain each text. The yielded counts are complete after the block."""
    counts: dict[str, int] = {}
    with subprocess.Popen(node_exec("python3", "-c", SNIFF, *texts), stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "ready\n"
        yield counts
        process.stdin.close()
        counts.update(json.loads(process.stdout.readline()))


def test_the_node_sees_no_plaintext_between_pods_with_sidecars(bank: Cluster) -> None:
    """R74. The same requests between pods without sidecars are visible, so the sniffer works."""
    with sniffer("/secret-path", "/visible-path") as seen:
        encrypted = bank.python(BANK, "client", SEND, "accounts", "/secret-path")
        plain = bank.python(OUTSIDE, "client", SEND, "accounts", "/visible-path")
    assert encrypted == plain == [200] * 20
    assert seen["/visible-path"] >= 20
    assert seen["/secret-path"] == 0


def test_a_client_without_a_sidecar_gets_no_response(bank: Cluster) -> None:
    """R74. Its connections to the pods' addresses are reset."""
    bank.wait_for_nodes(OUTSIDE, app="accounts")  # they may still know a pod that another test has deleted
    assert set(bank.python(OUTSIDE, "client", SEND, f"accounts.{BANK}", "/")) <= {
        "ConnectionResetError",
        "RemoteDisconnected",
    }


def test_a_server_that_is_being_deleted_serves_clients_that_do_not_know_it_yet(bank: Cluster) -> None:
    """The client has lost its control plane. Kubernetes 1.20 removes the pod from the EndpointSlices at once."""
    (client,) = pod_names(bank, "client")
    (server,) = pod_names(bank, "accounts")
    with holding(bank, BANK, server), without_control_plane(bank, client):
        bank.kubectl("-n", BANK, "delete", "pod", server, "--wait=false")
        until(lambda: is_ready_endpoint(bank, server, "accounts"))  # the mesh has the replacement, and so the deletion
        assert bank.python(BANK, "client", SEND, "accounts", "/") == [200] * 20


def test_mutual_tls_stays_strict_while_replicas_are_replaced_and_killed(bank: Cluster) -> None:
    """R74, D28. Each request of the client without a sidecar has its own connection. Nothing changes for users of the object."""
    bank.wait_ended(BANK)
    until(lambda: strict(bank)["status"]["pods"]["total"] == 2, "the end of pods that another test has deleted")
    bank.wait_programmed("tlsconfig/strict", BANK)
    before = strict(bank)
    with (
        load(bank, BANK, "accounts") as inside,
        load(bank, OUTSIDE, f"accounts.{BANK}", reconnect=True) as outside,
    ):
        old = active_pod(bank)
        bank.kubectl("-n", SYSTEM, "delete", "pod", old, "--wait=false")
        wait_replicas(bank)
        bank.wait_in_sync(BANK)
        kill_program(bank, active_pod(bank))
        wait_replicas(bank)
        bank.wait_in_sync(BANK)
    assert inside["accounts"] > 0
    assert not failures(inside, "accounts")
    assert sum(outside.values()) > 0
    assert all("RemoteDisconnected" in text or "ConnectionResetError" in text for text in outside), outside
    assert strict(bank) == before


def strict(cluster: Cluster) -> Any:
    """Return the TLSConfig, which selects the pods of the server and of the client."""
    return cluster.get("tlsconfig/strict", BANK)


def is_ready_endpoint(cluster: Cluster, replaced: str, service: str) -> bool:
    """Return whether a Service has a ready endpoint other than the replaced pod. It gets one after the pod is ready."""
    slices = cluster.get("endpointslices", BANK, f"kubernetes.io/service-name={service}")["items"]
    endpoints = [endpoint for one in slices for endpoint in one["endpoints"] or ()]
    return any(item["conditions"]["ready"] and item["targetRef"]["name"] != replaced for item in endpoints)


def pod_names(cluster: Cluster, app: str) -> list[str]:
    """Return the names of a Deployment's pods."""
    return [item["metadata"]["name"] for item in cluster.get("pods", BANK, f"app={app}")["items"]]


@contextmanager
def without_control_plane(cluster: Cluster, pod: str) -> Iterator[None]:
    """Drop all packets from the xDS server to a pod. After the block, wait until the pod's proxy is in sync again."""
    change = ["nsenter", "--net", "--target", str(program(pod)), "iptables", "--wait"]
    rule = ["INPUT", "--protocol", "tcp", "--sport", str(XDS_PORT), "--jump", "DROP"]
    subprocess.run([*change, "--insert", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([*change, "--delete", *rule], check=True)
        cluster.wait_in_sync(BANK)
