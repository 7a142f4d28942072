"""TrafficTargets in audit mode count the calls that they would refuse, and rules generated from traffic allow it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER
from tests.e2e.test_identity_access import RAW, ROUTES, WEB, ask, open_connections
from tests.e2e.world import World, until

THIEF = "thief"
GATEWAY = "headgate-system/gateway"
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


def test_an_audit_counts_exactly_the_calls_that_it_would_refuse(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    world = new_world(manifests={**rig.site(tmp_path), "thief.yaml": rig.workload(THIEF, tmp_path)})
    world.submit(*map(json.dumps, ROUTES), *(audited(rig.target(CALLER, rule=rule)) for rule in (WEB, RAW)))
    for name in TARGETS:
        rig.headgate_wait(world, f"traffictarget/{name}-callers")
    with open_connections(world) as (web, raw):
        assert [ask(world, web).answered_by for _ in range(3)] == [SERVER] * 3
        assert ask(world, raw).answered_by == SERVER
        assert world.send(5, rig.request_through_sidecar(rig.pod(world, THIEF))) == {SERVER: 5}
        assert world.send(2, world.request(SERVER, 8080)) == {SERVER: 2}
    expected = {
        (f"default/{THIEF}", 8080, "http"): (5, "NoTargetNamesCaller"),
        (GATEWAY, 8080, "http"): (2, "NoTargetNamesCaller"),
    }
    until(lambda: would_refuse(world, "web") == expected, "the status has the counts")
    until(lambda: would_refuse(world, "raw") == expected, "the status has the counts")
