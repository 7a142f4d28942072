"""The canary loop of specification 004 with a real Envoy, and with a control plane that is killed at each step (R108, R109)."""

import json

import pytest
from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.e2e.versions import ANALYSIS, Versions, canary_of_web
from tests.make.objects import canary, manifest
from tests.make.rollouts import message_of, request, state_of
from tests.waiting import until

SPECIFIED = """
apiVersion: v1beta1
kind: Canary
metadata:
  name: my-canary
spec:
  service: web
  backends:
  - service: web-next
    weight: 100m
  - service: web-current
    weight: 900m
"""


@pytest.fixture
def versions(mesh: RunningMesh, namespace: str) -> Versions:
    return Versions(mesh, namespace)


def test_the_specified_canary_creates_its_service_and_splits_exactly(versions: Versions) -> None:
    """R32: the Service `web` is created, and gives 10 % to web-next and 90 % to web-current (R33)."""
    mesh, namespace = versions.mesh, versions.namespace
    mesh.submit(SPECIFIED, namespace=namespace)
    until(lambda: state_of(versions.status("my-canary")) == "Split")
    until(lambda: mesh.get("service/web", namespace)["spec"]["clusterIP"])
    mesh.conditions("my-canary", namespace, Programmed="True")
    request = mesh.request("web", 8080, namespace=namespace)
    until(lambda: "503" not in mesh.send(1, request))
    assert mesh.send(100, request) == {"current": 90, "next": 10}
    mesh.delete("canary/my-canary", namespace)
    until(lambda: not mesh.get("trafficsplits", namespace)["items"])


def test_the_root_and_a_backend_without_endpoints_keep_the_shares_that_fields_of_a_canary_give_them(
    mesh: RunningMesh, namespace: str
) -> None:
    """D1 and D9: as with the annotations of a TrafficSplit, until the field is removed."""
    mesh.apply(
        external("shop", mesh.backend("root")),
        external("shop-v1", mesh.backend("v1")),
        external("shop-v2"),
        namespace=namespace,
    )
    written = canary("shop", {"shop": 8, "shop-v1": 1, "shop-v2": 1}, namespace="", allowSelfReference=True)
    failing = {**written, "spec": {**written["spec"], "noEndpointsPolicy": "Fail"}}
    mesh.apply(manifest(failing), namespace=namespace)
    request = mesh.request("shop", 8080, namespace=namespace)
    until(lambda: "503" in mesh.send(10, request))
    assert mesh.send(200, request).keys() == {"root", "v1", "503"}  # random, because a share fails
    mesh.apply(manifest(written), namespace=namespace)
    until(lambda: "503" not in mesh.send(200, request))  # with the earlier field, a tenth fails at random
    assert mesh.send(90, request) == {"root": 80, "v1": 10}


def test_a_failing_version_gets_no_requests_any_more_and_the_status_says_why(versions: Versions) -> None:
    """004: "Monitor for success rate to drop below 100%. If it does, rollback"."""
    mesh, namespace = versions.mesh, versions.namespace
    versions.next.status = "500 Internal Server Error"
    versions.begin({**ANALYSIS, "interval": "1m"})
    with mesh.load(mesh.request("web", 8080, namespace=namespace)) as load:
        status = versions.ended("RolledBack")
    assert set(load.counts) <= {"current", "500"}
    assert "more requests fail than at web-current; web-next failed " in message_of(status)
    assert {item["service"]: item["weight"] for item in status["backends"]} == {"web-current": 1, "web-next": 0}
    assert mesh.event("RolledBack", "web", namespace)[0] == "Warning"
    assert mesh.send(100, mesh.request("web", 8080, namespace=namespace)) == {"current": 100}


def test_a_healthy_version_gets_all_requests_although_the_control_plane_is_killed_at_each_step(
    unstarted: RunningMesh,
) -> None:
    """004: "Loop until all traffic is on v2". No request fails, and no step is left out."""
    mesh = unstarted
    mesh.start()
    mesh.create_namespace("shop")
    versions = Versions(mesh, "shop")
    versions.begin(ANALYSIS)
    mesh.settle()
    with mesh.load(*[mesh.request("web", 8080, namespace="shop")] * 2) as load:
        for step in (1, 2, 3):
            until(lambda step=step: versions.status()["step"] >= step, seconds=60)
            assert versions.status()["step"] == step
            mesh.kill()
            mesh.start()
        status = versions.ended("Promoted")
    assert set(load.counts) == {"current", "next"}
    unused = next(item for item in status["conditions"] if item["type"] == "OldVersionUnused")
    assert unused["status"] == "True"
    versions.current.reset_count()
    assert mesh.send(100, mesh.request("web", 8080, namespace="shop")) == {"next": 100}
    assert versions.current.requests == 0


def test_a_user_promotes_and_aborts_and_sees_it(versions: Versions) -> None:
    """The same annotation that `headgate rollout` writes."""
    mesh, namespace = versions.mesh, versions.namespace
    versions.begin({**ANALYSIS, "interval": "10m"})
    mesh.kubectl("patch", "canary", "web", "--type=merge", "-p", request("Promote", "1"), "-n", namespace)
    until(lambda: versions.status()["step"] == 2)
    mesh.kubectl("patch", "canary", "web", "--type=merge", "-p", request("Abort", "2"), "-n", namespace)
    assert "aborted by a user" in message_of(versions.ended("RolledBack"))


def test_each_write_of_a_canary_warns_of_its_effect_although_the_rollout_follows_at_once(versions: Versions) -> None:
    """R22: the effect is computed from the state before the write, as that of a dry run."""
    mesh, namespace = versions.mesh, versions.namespace
    mesh.apply(external("web", versions.current), namespace=namespace)
    words = ("-n", namespace)

    def warned(*command: str, stdin: str = "") -> str:
        done = mesh.try_kubectl(*command, *words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stderr

    created = canary_of_web({**ANALYSIS, "interval": "10m"})
    effect = f"effect on requests and access: Service {namespace}/web:8080"
    assert effect in warned("create", "-f", "-", stdin=created)
    until(lambda: mesh.get("trafficsplits", namespace)["items"])
    changed = canary_of_web({**ANALYSIS, "interval": "10m"}, percent=40)
    assert effect in warned("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=changed)
    backends = [{"service": "web-current", "weight": 4}, {"service": "web-next", "weight": 1}]
    assert effect in warned(
        "patch", "canary", "web", "--type=merge", "-p", json.dumps({"spec": {"backends": backends}})
    )
    assert effect in warned("delete", "canary", "web")
