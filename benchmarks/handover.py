"""Measure planned handovers on a real cluster: how long sidecars have no control plane when the active replica is deleted.

HEADGATE_TEST_CLUSTER names the directory of the programs that start the cluster (`tests/pods/kit.py`).
"""

import contextlib
import http.client
import json
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    active_pod,
    app_deployment,
    http_service,
    mesh_namespace,
    program,
    split_in,
    started,
)
from tests.pods.kit import IMAGE, CannotStart
from tests.waiting import until

from headgate.envoy.proxy_container import ADMIN_SOCKET, DIRECTORY

POLL_S = 0.005
SHOP = "shop"
STATS = "/stats?format=json&filter=^(control_plane.connected_state|cluster_manager.cds.update_success)$"


class Scale(NamedTuple):
    """How often the active replica is replaced, and the number of sidecars."""

    handovers: int
    sidecars: int


USUAL = Scale(handovers=20, sidecars=4)
SMALLEST = None  # a cluster takes minutes to start


class Admin(http.client.HTTPConnection):
    """A connection to the admin interface of a pod's Envoy, which runs as process `pid`."""

    def __init__(self, pid: int) -> None:
        super().__init__("localhost")
        self._path = f"/proc/{pid}/root{DIRECTORY}/{ADMIN_SOCKET}"

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)

    def stream(self) -> tuple[bool, int]:
        """Return whether Envoy has opened a stream, and how many responses with clusters it has received.

        Envoy opens a stream before it has a connection. headgate sends such a response on each new stream.
        """
        self.request("GET", STATS)
        stats = {stat["name"]: stat["value"] for stat in json.loads(self.getresponse().read())["stats"]}
        return bool(stats["control_plane.connected_state"]), stats["cluster_manager.cds.update_success"]


class Watch:
    """Watches whether a sidecar has a control plane."""

    def __init__(self, pid: int) -> None:
        self._longest = 0.0
        self._admin = Admin(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch during the `with` block."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()

    def take(self) -> float:
        """Return the longest time without a control plane since the last call, in milliseconds; 0 below `POLL_S`."""
        found, self._longest = self._longest, 0.0
        return 1000 * found

    def _run(self) -> None:
        served, before, is_served = time.perf_counter(), 0, True
        while not self._ended.wait(POLL_S):
            is_open, responses = self._admin.stream()
            is_served = is_open and (is_served or responses > before)
            if is_served:
                served, before = time.perf_counter(), responses
            else:
                self._longest = max(self._longest, time.perf_counter() - served)


async def measure(scale: Scale) -> None:
    """Start a cluster, replace the active replica again and again, and print the times, or skip this if no cluster can be started."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(started())
        except CannotStart as error:
            pytest.skip(str(error))
        install(cluster, scale.sidecars)
        pods = cluster.get("pods", SHOP)["items"]
        watches = [Watch(program(pod["metadata"]["name"])) for pod in pods]
        for watch in watches:
            stack.enter_context(watch.running())
        times = []
        for _ in range(scale.handovers):
            hand_over(cluster)
            times.append([watch.take() for watch in watches])
    print(row("a sidecar", [each for handover in times for each in handover]))
    print(row(f"the last of {scale.sidecars} sidecars", [max(handover) for handover in times]))


def install(cluster: Cluster, sidecars: int) -> None:
    """Install headgate, and Deployments with sidecars."""
    cluster.headgate("install", "--image", IMAGE)
    cluster.apply(
        mesh_namespace(SHOP),
        http_service(SHOP, "website", part="website"),
        http_service(SHOP, "website-v1", app="v1"),
        split_in(SHOP, "canary", "website", website_v1=1),
        app_deployment(SHOP, "v1", replicas=sidecars, part="website"),
    )
    cluster.wait_rolled_out(SHOP, "v1")
    cluster.wait_programmed("trafficsplit/canary", SHOP)


def hand_over(cluster: Cluster) -> None:
    """Delete the active replica, and wait until another one is active and two replicas are ready."""
    old = active_pod(cluster)
    cluster.kubectl("-n", SYSTEM, "delete", "pod", old, "--wait=false")
    until(lambda: active_pod(cluster) != old)
    cluster.wait_rolled_out(SYSTEM, "headgate")
    cluster.wait_programmed("trafficsplit/canary", SHOP)


def row(what: str, times: Sequence[float]) -> str:
    """Return a line with the percentiles of times in milliseconds."""
    ordered = sorted(times)
    return (
        f"{what}: {len(ordered)} times without a control plane: "
        f"median {statistics.median(ordered):.0f} ms, p90 {ordered[len(ordered) * 9 // 10]:.0f} ms, most {ordered[-1]:.0f} ms"
    )
