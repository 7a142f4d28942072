"""TrafficTargets in audit mode count the calls that they would refuse, and rules generated from traffic allow it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER, TunnelClient
from tests.e2e.test_identity_access import RAW, ROUTES, WEB, ask, open_connections
from tests.e2e.world import BIN, World
from tests.waiting import until
from tests.wire import Request

THIEF = "thief"
GATEWAY = "headgate-system/gateway"
PLAINTEXT = "127.0.0.1"
TARGETS = ("web", "raw")


def audited(manifest: str) -> str:
    found = json.loads(manifest)
    found["metadata"]["annotations"] = {"headgate.dev/mode": "audit"}
    return json.dumps(found)


def would_refuse(world: World, name: str) -> Mapping[tuple[str, int, str], tuple[int, str]]:
    """Return the calls and the reason in the status of a TrafficTarget, by caller, port and protocol."""
    found = world.get(f"traffictarget/{name}-callers")["status"].get("wouldRefuse", {})
    return {
        (item["caller"], item["port"], item["protocol"]): (item["calls"], item["reason"])
        for item in found.get("callers", ())
    }


def test_an_audit_counts_exactly_what_it_would_refuse_and_rules_from_the_traffic_close_the_thief_out(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    world = new_world(manifests={**rig.site(tmp_path), "thief.yaml": rig.workload(THIEF, tmp_path)})
    world.submit(*map(json.dumps, ROUTES), *(audited(rig.target(CALLER, rule=rule)) for rule in (WEB, RAW)))
    for name in TARGETS:
        rig.headgate_wait(world, f"traffictarget/{name}-callers")
    theft = rig.request_through_sidecar(rig.pod(world, THIEF))
    with open_connections(world) as (web, raw):
        assert [ask(world, web).answered_by for _ in range(3)] == [SERVER] * 3
        assert ask(world, raw).answered_by == SERVER
    thief_raw = TunnelClient(rig.pod_address(rig.pod(world, THIEF), rig.SIDECAR_PORT), f"{SERVER}.default:9000")
    assert ask(world, thief_raw).answered_by == SERVER  # a second request on this connection would count no connection
    world.network.run(rig.close(thief_raw))
    assert world.send(5, theft) == {SERVER: 5}
    assert world.send(2, world.request(SERVER, 8080)) == {SERVER: 2}
    assert world.send(4, Request(rig.pod_address(rig.pod(world, SERVER)), host=SERVER)) == {SERVER: 4}

    refused = {
        (f"default/{THIEF}", 8080, "http"): (5, "NoTargetNamesCaller"),
        (GATEWAY, 8080, "http"): (2, "NoTargetNamesCaller"),
        (PLAINTEXT, 8080, "http"): (4, "NoIdentity"),
        (f"default/{THIEF}", 9000, "tcp"): (1, "NoTargetNamesCaller"),
    }
    for name in TARGETS:
        until(lambda name=name: would_refuse(world, name) == refused, f"the status of {name} has the counts")
    since = transitions(world)
    world.stop()
    world.start()  # counts survive a restart
    shown = traffic(world, "audit", "-o", "json")
    assert {
        (item["caller"] or item["plaintextCaller"], item["port"], item["protocol"]): item["wouldRefuse"]
        for item in json.loads(shown)
    } == {key: calls for key, (calls, _) in refused.items()}

    excluded = ("--exclude", f"default/{THIEF}", "--exclude", PLAINTEXT)
    assert transitions(world) == since

    rules = world.headgate("generate", "traffictargets", "--from-traffic", "7d", *excluded)
    assert rules.returncode == 0, rules.stderr
    for name in TARGETS:
        world.delete(f"traffictarget/{name}-callers")
    world.submit(rules.stdout)
    for name in ("http-8080", "tcp-9000"):
        rig.headgate_wait(world, f"traffictarget/{SERVER}-{name}")
    theft = rig.request_through_sidecar(rig.pod(world, THIEF))
    assert world.send(3, theft) == {"403": 3}
    assert world.send(3, world.request(SERVER, 8080)) == {SERVER: 3}
    with open_connections(world) as (web, raw):
        assert ask(world, web).answered_by == ask(world, raw).answered_by == SERVER
    assert world.complaints == []


def transitions(world: World) -> Sequence[str]:
    """Return the times at which the conditions WouldRefuse became True."""
    found = [world.get(f"traffictarget/{name}-callers")["status"]["conditions"] for name in TARGETS]
    assert all(item["status"] == "True" for each in found for item in each if item["type"] == "WouldRefuse")
    return [item["lastTransitionTime"] for each in found for item in each if item["type"] == "WouldRefuse"]


def traffic(world: World, *words: str) -> str:
    """Run `kubectl traffic`; return its output."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(world.state / "kubeconfig")}
    done = subprocess.run(
        [str(BIN / "kubectl"), "traffic", *words], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
