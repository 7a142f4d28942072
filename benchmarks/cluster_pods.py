"""Start pods with sidecars at once on a real cluster of one node, whose users have as many inotify instances as on a stock node.

HEADGATE_TEST_CLUSTER names the directory of the programs that start the cluster (`tests/pods/kit.py`).
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.pods.conftest import COMMAND_POLL_S, Cluster, app_deployment, http_service, mesh_namespace, started, until
from tests.pods.kit import IMAGE, CannotStart

USUAL = (36, 105)
"""Numbers of pods. A node has room for 110, of which the control plane, the cluster's DNS and a client use three."""
SMALLEST = None  # a cluster takes minutes to start
PLACE = "crowd"
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
STOCK_INSTANCES = 128
CPU_REQUEST = "10m"
"""The usual request, 20m, has room for about 90 sidecars on two processors."""
LONGEST_S = 900


async def measure(scale: Sequence[int]) -> None:
    """Start a cluster, and print the time until all pods are ready and in sync, or skip this if no cluster can be started."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(started())
        except CannotStart as error:
            pytest.skip(str(error))
        stack.enter_context(stock_limit())
        cluster.headgate("install", "--image", IMAGE, "--replicas", 1, "--proxy-cpu", CPU_REQUEST)
        client = app_deployment(PLACE, "client", command=["sleep", "infinity"])
        cluster.apply(mesh_namespace(PLACE), http_service(PLACE, "web", app="web"), client)
        cluster.wait_rolled_out(PLACE, "client")
        for count in scale:
            print(f"{count} pods: {start(cluster, count)}", flush=True)


@contextlib.contextmanager
def stock_limit() -> Iterator[None]:
    """Let each user have as many inotify instances as on a stock node during the `with` block."""
    before = INSTANCES.read_text()
    INSTANCES.write_text(str(STOCK_INSTANCES))
    try:
        yield
    finally:
        INSTANCES.write_text(before)


def start(cluster: Cluster, count: int) -> str:
    """Start a Deployment with this many pods; return the times, in words, and its processor time."""
    began, used = time.monotonic(), busy_seconds()
    cluster.apply(app_deployment(PLACE, "web", replicas=count))

    def ready() -> bool:
        return int(cluster.get("deployment/web", PLACE)["status"].get("readyReplicas", 0)) == count

    def in_sync() -> bool:
        proxies = cluster.api.call("GET", "/apis/inspect.headgate.dev/v1beta1/proxies")["items"]
        states = [item["status"]["state"] for item in proxies if item["node"].startswith(f"sidecar/{PLACE}/web-")]
        return states == ["InSync"] * count

    until(ready, f"{count} ready pods", LONGEST_S, poll=COMMAND_POLL_S)
    until_ready = time.monotonic() - began
    until(in_sync, f"{count} sidecars in sync", LONGEST_S, poll=COMMAND_POLL_S)
    until_in_sync, processors = time.monotonic() - began, busy_seconds() - used
    cluster.kubectl("-n", PLACE, "delete", "deployment/web")
    until(
        lambda: not cluster.get("pods", PLACE, "app=web")["items"],
        "the end of the pods",
        LONGEST_S,
        poll=COMMAND_POLL_S,
    )
    return f"ready after {until_ready:.0f} s, in sync after {until_in_sync:.0f} s, {processors:.0f} s of processor time"


def busy_seconds() -> float:
    """Return the processor time of all programs on this machine."""
    user, nice, system, _idle, _waiting, *interrupts = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8]
    )
    return (user + nice + system + sum(interrupts)) / 100
