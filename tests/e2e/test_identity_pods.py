"""Pods and their sidecars end and come back while everybody calls through mutual TLS (R74, R76)."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import SERVER
from tests.e2e.world import World, until


def conditions(pod: Any) -> dict[str, str]:
    return {item["type"]: item["status"] for item in pod["status"]["conditions"]}


def test_a_rollout_between_sidecars_loses_nothing(new_world: Callable[..., World], tmp_path: Path) -> None:
    """Every pod is replaced, with its sidecar, its certificate and its address; who calls keeps calling."""
    world = new_world("--mtls", "strict", manifests=rig.site(tmp_path, replicas=2))
    before = {pod["metadata"]["uid"] for pod in rig.pods(world, SERVER)}
    with rig.load_without_loss(world, tmp_path) as load:
        world.kubectl("rollout", "restart", f"deployment/{SERVER}")
        rig.headgate_wait(world, f"deployment/{SERVER}")
        until(
            lambda: not before & {pod["metadata"]["uid"] for pod in rig.pods(world, SERVER)}
        )  # the old ones have ended
        rig.wait_for_requests(load)
    assert len(rig.pods(world, SERVER)) == 2
    assert world.stderr == ""


def test_a_sidecar_that_is_killed_costs_what_was_under_way_in_it(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    """Its pod is not ready until it has another one; the other replica serves meanwhile, and retries bring requests there."""
    world = new_world("--mtls", "strict", manifests=rig.site(tmp_path, replicas=2))
    victim = rig.pods(world, SERVER)[0]
    name, first = victim["metadata"]["name"], rig.sidecar_pid(world, victim)
    ways = rig.caller_requests(world)
    watched = ["get", "pod", name, "-w", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}{'\\n'}"]
    with rig.kubectl_lines(world, *watched) as lines, world.load(*ways) as load:
        ready = (line.strip() for line in lines)
        assert next(ready) == "True"
        rig.wait_for_requests(load)
        os.kill(first, signal.SIGKILL)
        assert "False" in ready
        assert "True" in ready
        rig.wait_for_requests(load)
    lost = load.sent - load.counts[SERVER]
    assert lost <= len(ways), load.counts  # at most the one request that was under way on each connection
    assert set(load.counts) <= {SERVER, "503"}
    assert rig.sidecar_pid(world, victim) != first
    (now,) = [pod for pod in rig.pods(world, SERVER) if pod["metadata"]["name"] == name]
    assert now["status"]["containerStatuses"] == victim["status"]["containerStatuses"]  # the process went on
    assert conditions(now)["headgate.dev/SidecarReady"] == "True"
    assert "headgate starts it again" in world.event("SidecarNotReady", name)[2]
