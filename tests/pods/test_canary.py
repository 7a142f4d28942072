"""The canary loop of specification 004 on a real cluster; the active replica is killed at each step (R108, R109, D19)."""

import subprocess
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

import pytest
from tests.make.objects import Object, canary
from tests.make.rollouts import message_of, state_of
from tests.pods.conftest import (
    Cluster,
    active_pod,
    app_deployment,
    graceful,
    http_service,
    kill_program,
    mesh_namespace,
    until,
)
from tests.pods.kit import BIN
from tests.pods.load import failures, load

PLACE = "rollouts"
PAUSE_S = 0.05
"""The time between the requests of a connection: a step needs hundreds of requests, of which the first one gives a tenth to the version."""


@pytest.fixture(scope="module")
def shop(disturbed: Cluster) -> Cluster:
    """A client, and a Service in three versions, of which `broken` fails half of its requests."""
    broken = app_deployment(PLACE, "broken", part="website", version="broken")
    broken["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "FAIL_RATE", "value": "0.5"}]
    disturbed.apply(
        mesh_namespace(PLACE),
        http_service(PLACE, "website", part="website"),
        *(http_service(PLACE, f"website-{version}", version=version) for version in ("v1", "v2", "broken")),
        graceful(app_deployment(PLACE, "v1", part="website", version="v1")),
        graceful(app_deployment(PLACE, "v2", part="website", version="v2")),
        broken,
        app_deployment(PLACE, "client", command=["sleep", "infinity"]),
    )
    disturbed.wait_rolled_out(PLACE, "v1", "v2", "broken", "client")
    disturbed.wait_in_sync(PLACE)
    return disturbed


def stepped_canary(version: str) -> Object:
    """Return a Canary that gives a version 10 %, half, and then all requests of the website."""
    weights = {"website-v1": "900m", f"website-{version}": "100m"}
    rules = {
        "canary": f"website-{version}",
        "steps": [{"share": "50%"}],
        "interval": "2s",
        "success": {"margin": "10%"},
    }
    return canary("website", weights, analysis=rules, namespace=PLACE)


def status(cluster: Cluster) -> Mapping[str, Any]:
    found: Mapping[str, Any] = cluster.get("canary/website", PLACE).get("status") or {}
    return found


def ended(cluster: Cluster, phase: str) -> Mapping[str, Any]:
    """Wait until every proxy has the last weights of the rollout; return the status."""

    def last() -> Mapping[str, Any]:
        current = status(cluster)
        programmed = [item["status"] for item in current.get("conditions", ()) if item["type"] == "Programmed"]
        assert (state_of(current), programmed) == (phase, ["True"]), current
        return current

    result: Mapping[str, Any] = until(last, phase)
    return result


def steps(cluster: Cluster) -> Generator[int]:
    """Yield each step that the rollout reaches, from the current one on; the watch misses none, however short it is."""
    show = ("get", "canary/website", "--watch", "--output", 'jsonpath={.status.step}{"\\n"}')
    command = [BIN / "kubectl", "--kubeconfig", cluster.work / "kubeconfig", "-n", PLACE, *show]
    last = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if (step := int(line.strip() or 0)) > last:
                    last = step
                    yield step
        finally:
            process.terminate()


def test_a_healthy_version_gets_all_requests_although_the_active_replica_is_killed_at_each_step(shop: Cluster) -> None:
    shop.apply(stepped_canary("v2"))
    until(lambda: state_of(status(shop)) == "Progressing")
    shop.wait_programmed("trafficsplit/website", PLACE)
    with closing(steps(shop)) as reached:
        assert next(reached) == 1  # without requests, the first step goes on
        with load(shop, PLACE, "website", pause=PAUSE_S) as counts:
            kill_program(shop, active_pod(shop))
            for step in (2, 3):
                assert next(reached) == step
                kill_program(shop, active_pod(shop))
            found = ended(shop, "Promoted")
    assert counts["v1"] > 0
    assert counts["v2"] > 0
    assert not failures(counts, "v1", "v2")
    assert {item["type"] for item in found["conditions"] if item["status"] == "True"} >= {
        "Promoted",
        "OldVersionUnused",
    }
    with load(shop, PLACE, "website") as counts:
        until(lambda: state_of(status(shop)) == "Promoted")
    assert set(counts) == {"v2"}


def test_a_failing_version_is_rolled_back(shop: Cluster) -> None:
    shop.kubectl("-n", PLACE, "delete", "canary/website", "--ignore-not-found")
    until(lambda: not shop.get("trafficsplits", PLACE)["items"])
    shop.apply(stepped_canary("broken"))
    until(lambda: state_of(status(shop)) == "Progressing")
    shop.wait_programmed("trafficsplit/website", PLACE)
    with load(shop, PLACE, "website", pause=PAUSE_S) as counts:
        found = ended(shop, "RolledBack")
    assert counts["v1"] > 0
    assert "v2" not in counts
    assert "more requests fail than at website-v1; website-broken failed " in message_of(found)
    with load(shop, PLACE, "website") as counts:
        until(lambda: state_of(status(shop)) == "RolledBack")
    assert set(counts) == {"v1"}
