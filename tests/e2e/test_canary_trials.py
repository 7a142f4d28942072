"""The steps of a Canary before its first share: copies of requests, and requests that fit a match (R108)."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.canaries import TESTER, canary_of_website, changed
from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.make.rollouts import message_of, request, state_of
from tests.waiting import until
from tests.wire import Request


class Trial:
    """A Canary whose root has requests; the versions answer in the test's process."""

    def __init__(self, mesh: RunningMesh, namespace: str, manifest: str = "", **analysis: Any) -> None:
        self.mesh, self.namespace = mesh, namespace
        self.v1, self.v2 = mesh.backend("v1"), mesh.backend("v2")
        mesh.apply(external("website-v1", self.v1), external("website-v2", self.v2), namespace=namespace)
        mesh.apply(manifest or canary_of_website(**analysis), namespace=namespace)
        self.request: Request = until(lambda: mesh.request("website", 8080, namespace=namespace))
        self.until_status(lambda status: "waiting" not in message_of(status))

    @property
    def status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.mesh.get("canary/website", self.namespace).get("status") or {}
        return found

    def until_status(self, wanted: Any) -> Mapping[str, Any]:
        """Send requests of users and testers until the status is as wanted; return it."""

        def current() -> Mapping[str, Any]:
            self.mesh.send(10, self.request)
            self.mesh.send(10, self.request._replace(headers=TESTER))
            found = self.status
            assert wanted(found), found
            return found

        return until(current)


def test_copies_and_then_testers_reach_the_canary_before_any_other_user(mesh: RunningMesh, namespace: str) -> None:
    match = [{"name": "testers", "headers": {"x-tester": "yes"}}]
    trial = Trial(
        mesh, namespace, mirror="50%", matches=match, steps=[{"share": "10%", "pause": True}], minRequests=100
    )
    testers = trial.request._replace(headers=TESTER)
    assert trial.status["step"] == 1
    assert mesh.send(20, trial.request) == {"v1": 20}
    assert mesh.send(20, testers) == {"v1": 20}
    until(lambda: trial.v2.requests > 0)

    trial.until_status(lambda status: status["step"] == 2 and "waiting" not in message_of(status))
    assert mesh.send(20, trial.request) == {"v1": 20}
    assert mesh.send(20, testers) == {"v2": 20}
    mesh.conditions("website-match", namespace, Programmed="True")

    trial.until_status(lambda status: status["step"] == 3 and "waiting" not in message_of(status))
    assert "mirror" not in mesh.get("trafficsplit/website", namespace)["metadata"]["annotations"]
    until(lambda: "website-match" not in str(mesh.get("trafficsplits", namespace)["items"]))
    assert "website-match" not in str(mesh.get("httproutegroups", namespace)["items"])
    mesh.settle()
    # The order of each ten is drawn, and the requests may begin and end within ten: nine whole cycles and two parts.
    counts = mesh.send(100, testers)
    assert counts.keys() == {"v1", "v2"}
    assert 9 <= counts["v2"] <= 11


def test_failing_copies_roll_back_before_any_user_gets_the_canary(mesh: RunningMesh, namespace: str) -> None:
    trial = Trial(mesh, namespace, mirror="50%", steps=[{"share": "10%", "pause": True}], minRequests=100_000)
    trial.v2.status = "500 Broken"
    status = trial.until_status(lambda status: state_of(status) == "RolledBack")
    assert (
        "rolled back at step 1 of 3, copies of 50% of the requests: more requests fail than at website-v1"
        in message_of(status)
    )
    mesh.settle()
    active = f"/stats?filter=mirror/{namespace}/.*upstream_rq_active"
    until(
        lambda: not any(int(line.rpartition(b": ")[2]) for line in mesh.envoy(active).splitlines()), "the last copies"
    )
    before = trial.v2.requests
    assert mesh.send(50, trial.request) == {"v1": 50}
    assert trial.v2.requests == before, "the copies have ended"


def test_sticky_users_keep_their_version_while_the_canarys_share_rises(mesh: RunningMesh, namespace: str) -> None:
    """The requests of each user go to one version, and both versions are still compared."""
    sticky = {"by": "Header", "name": "x-user"}
    written = canary_of_website(steps=[{"share": "50%", "pause": True}], interval="1h")
    trial = Trial(mesh, namespace, manifest=changed(written, stickiness=sticky))

    def versions() -> Mapping[str, str]:
        users = [f"user-{number}" for number in range(60)]
        asked = {name: trial.request._replace(headers={"x-user": name}) for name in users}
        answers = {name: mesh.send(2, request) for name, request in asked.items()}
        assert all(len(found) == 1 for found in answers.values()), answers
        return {name: next(iter(found)) for name, found in answers.items()}

    before = versions()
    assert 0 < sum(version == "v2" for version in before.values()) < 20
    trial.until_status(lambda status: all(row.get("requests") for row in status["backends"]))
    mesh.kubectl("patch", "canary", "website", "--type=merge", "-p", request("Promote", "1"), "-n", namespace)
    until(lambda: trial.status["step"] == 2 and "waiting" not in message_of(trial.status))
    mesh.settle()
    after = versions()
    assert {name for name, version in before.items() if version == "v2"} < {
        name for name, version in after.items() if version == "v2"
    }
