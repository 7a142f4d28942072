"""The workflow `foobar-rollout` of specification 001 with kubectl; the pods count the requests after each step."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.manifests import external, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until
from tests.wire import Request

ROLLOUT = Path(__file__).parents[2] / "examples" / "foobar-rollout"


class Rollout:
    """The rollout example in a namespace, with the requests that its pods logged."""

    def __init__(self, mesh: RunningMesh, namespace: str) -> None:
        self.mesh = mesh
        self.namespace = namespace
        self.sent = 0

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the namespace and wait until its changes are active; return its output."""
        output = self.mesh.kubectl(*words, "-n", self.namespace)
        self.mesh.settle()
        return output

    def step(self, name: str) -> None:
        """Apply a file of the example."""
        self.kubectl("apply", "-f", str(ROLLOUT / name))

    def request(self, service: str = "foobar") -> Request:
        """Return a request with a unique path, by which the pods' logs are counted."""
        self.sent += 1
        return self.mesh.request(service, 8080, namespace=self.namespace)._replace(target=f"/{self.sent}")

    def send(self, count: int, service: str = "foobar") -> Counter[str]:
        """Send requests, assert that answers and the pods' logs agree, and return the number of answers by version."""
        request = self.request(service)
        answers = self.mesh.send(count, request)
        assert answers == until(lambda: self._counted(request.target, sum(answers.values())))
        return answers

    def _counted(self, path: str, total: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for pod in self.mesh.get("pods", self.namespace)["items"]:
            lines = self.mesh.api.logs(pod["metadata"]["name"], self.namespace).splitlines()
            counts[pod["metadata"]["labels"]["version"]] += lines.count(f"GET {path}")
        counts = +counts
        assert sum(counts.values()) == total
        return counts


@pytest.fixture
def rollout(mesh: RunningMesh, namespace: str) -> Rollout:
    found = Rollout(mesh, namespace)
    found.kubectl("apply", "-f", str(ROLLOUT / "before"))
    mesh.wait_for_rollout("foobar-v1", namespace)
    until(lambda: mesh.send(2, found.request()) == {"v1": 2})
    return found


def test_each_step_of_the_rollout_workflow_moves_the_requests_as_specified(rollout: Rollout) -> None:
    mesh, namespace = rollout.mesh, rollout.namespace
    assert rollout.send(20) == {"v1": 20}

    rollout.step("steps/1-split.yaml")  # R22: v2 does not exist yet
    assert rollout.send(20) == {"v1": 20}
    conditions = mesh.conditions("foobar-rollout", namespace, ResolvedRefs="BackendNotFound")
    status, _, message = conditions["ResolvedRefs"]
    assert status == "False"
    assert "foobar-v2" in message

    with mesh.load(rollout.request()) as load:  # R23: no request fails while v2 starts
        rollout.step("steps/2-foobar-v2.yaml")
        mesh.wait_for_rollout("foobar-v2", namespace)
        until(lambda: mesh.send(1, rollout.request("foobar-v2")) == {"v2": 1})
    assert load.counts == {"v1": load.sent}
    assert rollout.send(20) == {"v1": 20}
    assert rollout.send(10, "foobar-v2") == {"v2": 10}  # R21: clients can call v2 directly

    with mesh.load(rollout.request()) as load:  # R25
        rollout.step("steps/3-one-third.yaml")
        before = Counter(load.counts)
        until(lambda: load.counts["v2"] > before["v2"])
    assert set(load.counts) == {"v1", "v2"}
    assert rollout.send(300) == {"v1": 200, "v2": 100}  # R7

    rollout.step("steps/4-all.yaml")
    assert rollout.send(20) == {"v2": 20}

    with mesh.load(rollout.request()) as load:  # R26
        rollout.kubectl("delete", "deployment", "foobar-v1")
        rollout.kubectl("delete", "service", "foobar-v1")
        until(lambda: len(mesh.get("pods", namespace)["items"]) == 1)
    assert load.counts == {"v2": load.sent}
    fine = dict.fromkeys(("Accepted", "ResolvedRefs", "BackendsReady", "Programmed"), "True")
    assert mesh.conditions("foobar-rollout", namespace, **fine).keys() == fine.keys() | {"Conflicted"}

    with mesh.load(rollout.request()) as load:  # R27
        rollout.kubectl("delete", "trafficsplit", "foobar-rollout")
        assert rollout.send(20) == {"v2": 20}
    assert load.counts == {"v2": load.sent}


def test_a_new_split_removes_v2_from_the_roots_traffic_at_once_and_applies_to_each_client_separately(
    rollout: Rollout,
) -> None:
    """R24, R27: without the split, the root's traffic goes to all pods that it selects.

    R20: requests that a client sends to a backend directly don't change the shares of the split.
    """
    mesh, namespace = rollout.mesh, rollout.namespace
    rollout.step("steps/2-foobar-v2.yaml")
    mesh.wait_for_rollout("foobar-v2", namespace)
    until(lambda: set(mesh.send(30, rollout.request())) == {"v1", "v2"})
    rollout.step("steps/1-split.yaml")
    assert rollout.send(50) == {"v1": 50}

    rollout.step("steps/3-one-third.yaml")
    mesh.conditions("foobar-rollout", namespace, BackendsReady="True")
    mesh.settle()
    through_proxy = mesh.request("foobar", 8080, namespace=namespace, via="proxy")
    with mesh.load(rollout.request("foobar-v2")):
        assert mesh.send(300, rollout.request()) == {"v1": 200, "v2": 100}
        assert mesh.send(300, through_proxy) == {"v1": 200, "v2": 100}
    rollout.kubectl("delete", "trafficsplit", "foobar-rollout")
    assert rollout.send(30) == {"v1": 20, "v2": 10}  # round robin over three pods


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ({"v1": "1", "v2": "0m"}, {"v1": 300}),
        ({"v1": "1", "v2": "500m"}, {"v1": 200, "v2": 100}),
        ({"v1": 1, "v2": "500m"}, {"v1": 200, "v2": 100}),
        ({"v1": "10m", "v2": "100m", "v3": "1500m"}, {"v1": 10, "v2": 100, "v3": 1500}),
    ],
)
def test_weights_written_as_quantities_are_exact_shares(
    new_mesh: Callable[..., RunningMesh],
    mesh: RunningMesh,
    namespace: str,
    weights: dict[str, str],
    shares: dict[str, int],
) -> None:
    """R9, R10, D2, D24: in the form of specification 004, with the apiVersion `v1beta1`.

    With three backends, Envoy's rounding may move one request of the sample from one backend to another.
    """
    services = [external(name, mesh.backend(name)) for name in weights]
    mesh.apply(
        external("web"), *services, split_manifest("web", "web", weights, version="v1beta1"), namespace=namespace
    )
    assert mesh.send(sum(shares.values()), mesh.request("web", 8080, namespace=namespace)) == pytest.approx(
        shares, abs=1
    )
