"""TrafficTargets in audit mode count the calls that they would refuse, and rules generated from traffic allow it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, RAW, ROUTES, SERVER, WEB, TunnelClient, ask, open_connections
from tests.e2e.running_mesh import BIN, RunningMesh
from tests.waiting import until
from tests.wire import Request

THIEF = "thief"
GATEWAY = "headgate-system/gateway"
PLAINTEXT = "127.0.0.1"
TARGETS = ("web", "raw")


def would_refuse(mesh: RunningMesh, name: str) -> Mapping[tuple[str, int, str], tuple[int, str]]:
    """Return the calls and the reason in the status of a TrafficTarget, by caller, port and protocol."""
    found = mesh.get(f"traffictarget/{name}-callers")["status"].get("wouldRefuse", {})
    return {
        (item["caller"], item["port"], item["protocol"]): (item["calls"], item["reason"])
        for item in found.get("callers", ())
    }


def test_an_audit_counts_exactly_what_it_would_refuse_and_rules_of_both_kinds_close_the_thief_out(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    mesh = new_mesh(manifests={**rig.site(tmp_path), "thief.yaml": rig.workload(THIEF, tmp_path)})
    mesh.submit(ROUTES, *(rig.access(CALLER, rule=rule, mode="audit") for rule in (WEB, RAW)))
    for name in TARGETS:
        rig.headgate_wait(mesh, f"traffictarget/{name}-callers")
    theft = rig.request_through_sidecar(rig.only_pod(mesh, THIEF))
    with open_connections(mesh) as (web, raw):
        assert [ask(mesh, web).answered_by for _ in range(3)] == [SERVER] * 3
        assert ask(mesh, raw).answered_by == SERVER
    thief_raw = TunnelClient(rig.pod_address(rig.only_pod(mesh, THIEF), rig.SIDECAR_PORT), f"{SERVER}.default:9000")
    assert ask(mesh, thief_raw).answered_by == SERVER  # a second request on this connection would count no connection
    mesh.network.run(rig.close(thief_raw))
    assert mesh.send(5, theft) == {SERVER: 5}
    assert mesh.send(2, mesh.request(SERVER, 8080)) == {SERVER: 2}
    assert mesh.send(4, Request(rig.pod_address(rig.only_pod(mesh, SERVER)), host=SERVER)) == {SERVER: 4}

    refused = {
        (f"default/{THIEF}", 8080, "HTTP"): (5, "NoTargetNamesCaller"),
        (GATEWAY, 8080, "HTTP"): (2, "NoTargetNamesCaller"),
        (PLAINTEXT, 8080, "HTTP"): (4, "NoIdentity"),
        (f"default/{THIEF}", 9000, "TCP"): (1, "NoTargetNamesCaller"),
    }
    for name in TARGETS:
        until(lambda name=name: would_refuse(mesh, name) == refused, f"the status of {name} has the counts")
    since = transitions(mesh)
    mesh.stop()
    mesh.start()  # counts survive a restart
    shown = traffic(mesh, "audit", "-o", "json")
    assert {
        (item["caller"] or item["plaintextCaller"], item["port"], item["protocol"]): item["wouldRefuse"]
        for item in json.loads(shown)
    } == {key: calls for key, (calls, _) in refused.items()}

    excluded = ("--exclude", f"default/{THIEF}", "--exclude", PLAINTEXT)
    assert transitions(mesh) == since

    rules = mesh.headgate("generate", "traffictargets", "--from-traffic", "168h", *excluded)
    assert rules.returncode == 0, rules.stderr
    for name in TARGETS:
        mesh.delete(f"traffictarget/{name}-callers")
    mesh.submit(rules.stdout)
    targets = [f"traffictarget/{SERVER}-{name}" for name in ("http-8080", "tcp-9000")]
    for target in targets:
        rig.headgate_wait(mesh, target)
    assert_only_the_thief_is_refused(mesh)

    policies = mesh.headgate("generate", "xauthorizationpolicies", "--from-traffic", "168h", *excluded)
    assert policies.returncode == 0, policies.stderr
    mesh.submit(policies.stdout)
    rig.headgate_wait(mesh, f"xauthorizationpolicy/{SERVER}")
    for target in targets:
        mesh.delete(target)
    mesh.settle()
    assert_only_the_thief_is_refused(mesh)
    assert mesh.complaints == []


def assert_only_the_thief_is_refused(mesh: RunningMesh) -> None:
    """Replay the calls: the recorded callers are allowed, and the excluded one is not."""
    thief = rig.only_pod(mesh, THIEF)
    assert mesh.send(3, rig.request_through_sidecar(thief)) == {"403": 3}
    assert mesh.send(3, mesh.request(SERVER, 8080)) == {SERVER: 3}
    with open_connections(mesh) as (web, raw):
        assert ask(mesh, web).answered_by == ask(mesh, raw).answered_by == SERVER


def transitions(mesh: RunningMesh) -> Sequence[str]:
    """Return the times at which the conditions WouldRefuse became True."""
    found = [mesh.get(f"traffictarget/{name}-callers")["status"]["conditions"] for name in TARGETS]
    assert all(item["status"] == "True" for each in found for item in each if item["type"] == "WouldRefuse")
    return [item["lastTransitionTime"] for each in found for item in each if item["type"] == "WouldRefuse"]


def traffic(mesh: RunningMesh, *words: str) -> str:
    """Run `kubectl traffic`; return its output."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(mesh.state / "kubeconfig")}
    done = subprocess.run(
        [str(BIN / "kubectl"), "traffic", *words], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
