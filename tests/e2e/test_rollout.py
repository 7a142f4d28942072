"""001's workflow `foobar-rollout` as a user does it with kubectl, with requests counted at the pods after each step."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.manifests import external, split
from tests.e2e.wire import Request
from tests.e2e.world import World, until

ROLLOUT = Path(__file__).parents[2] / "examples" / "foobar-rollout"


class Rollout:
    """The example in a namespace, and what its pods have counted."""

    def __init__(self, world: World, namespace: str) -> None:
        self.world = world
        self.namespace = namespace
        self.sent = 0

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the namespace and wait until what it did is in force."""
        said = self.world.kubectl(*words, "-n", self.namespace)
        self.world.settle()
        return said

    def step(self, name: str) -> None:
        """Apply a file of the example."""
        self.kubectl("apply", "-f", str(ROLLOUT / name))

    def request(self, service: str = "foobar") -> Request:
        """Describe a request; a unique path makes the pods' count of it exact."""
        self.sent += 1
        return self.world.request(service, 8080, namespace=self.namespace)._replace(target=f"/{self.sent}")

    def send(self, count: int, service: str = "foobar") -> Counter[str]:
        """Send requests and compare what the answers say with what the pods counted."""
        request = self.request(service)
        answers = self.world.send(count, request)
        assert answers == until(lambda: self._counted(request.target, sum(answers.values())))
        return answers

    def _counted(self, path: str, total: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        for pod in self.world.get("pods", self.namespace)["items"]:
            lines = self.world.kubectl("logs", pod["metadata"]["name"], "-n", self.namespace).splitlines()
            counts[pod["metadata"]["labels"]["version"]] += lines.count(f"GET {path}")
        counts = +counts
        assert sum(counts.values()) == total
        return counts


@pytest.fixture
def rollout(world: World, namespace: str) -> Rollout:
    found = Rollout(world, namespace)
    found.kubectl("apply", "-f", str(ROLLOUT / "before"))
    found.kubectl("rollout", "status", "deployment/foobar-v1", "--timeout=30s")
    until(lambda: world.send(2, found.request()) == {"v1": 2})
    return found


def test_the_workflow(rollout: Rollout) -> None:
    world, namespace = rollout.world, rollout.namespace
    assert rollout.send(20) == {"v1": 20}

    rollout.step("steps/1-split.yaml")  # R22: before v2 exists
    assert rollout.send(20) == {"v1": 20}
    told = world.conditions("foobar-rollout", namespace, ResolvedRefs="BackendNotFound")
    status, _, message = told["ResolvedRefs"]
    assert status == "False"
    assert "foobar-v2" in message

    with world.load(rollout.request()) as load:  # R23: before, while and after v2 comes up
        rollout.step("steps/2-foobar-v2.yaml")
        rollout.kubectl("rollout", "status", "deployment/foobar-v2", "--timeout=30s")
        until(lambda: world.send(1, rollout.request("foobar-v2")) == {"v2": 1})
    assert load.counts == {"v1": load.sent}
    assert rollout.send(20) == {"v1": 20}
    assert rollout.send(10, "foobar-v2") == {"v2": 10}  # R21: the spot check

    with world.load(rollout.request()) as load:  # R25
        rollout.step("steps/3-one-third.yaml")
        before = Counter(load.counts)
        until(lambda: load.counts["v2"] > before["v2"])
    assert set(load.counts) == {"v1", "v2"}
    assert rollout.send(300) == {"v1": 200, "v2": 100}  # R7

    rollout.step("steps/4-all.yaml")
    assert rollout.send(20) == {"v2": 20}

    with world.load(rollout.request()) as load:  # R26
        rollout.kubectl("delete", "deployment", "foobar-v1")
        rollout.kubectl("delete", "service", "foobar-v1")
        until(lambda: len(world.get("pods", namespace)["items"]) == 1)
    assert load.counts == {"v2": load.sent}
    fine = dict.fromkeys(("Accepted", "ResolvedRefs", "BackendsReady", "Programmed"), "True")
    assert world.conditions("foobar-rollout", namespace, **fine).keys() == fine.keys() | {"Conflicted"}

    with world.load(rollout.request()) as load:  # R27
        rollout.kubectl("delete", "trafficsplit", "foobar-rollout")
        assert rollout.send(20) == {"v2": 20}
    assert load.counts == {"v2": load.sent}


def test_a_split_takes_v2_out_of_the_traffic_at_once(rollout: Rollout) -> None:
    """R24, and R27: without the split, the root is all that its selector covers."""
    rollout.step("steps/2-foobar-v2.yaml")
    rollout.kubectl("rollout", "status", "deployment/foobar-v2", "--timeout=30s")
    until(lambda: set(rollout.world.send(30, rollout.request())) == {"v1", "v2"})
    rollout.step("steps/1-split.yaml")
    assert rollout.send(50) == {"v1": 50}
    rollout.kubectl("delete", "trafficsplit", "foobar-rollout")
    assert rollout.send(30) == {"v1": 20, "v2": 10}  # three pods, in turn


def test_each_client_gets_the_ratio(rollout: Rollout) -> None:
    """R20: weights count for each client, and what others send to a backend directly changes nothing."""
    world, namespace = rollout.world, rollout.namespace
    rollout.step("steps/2-foobar-v2.yaml")
    rollout.step("steps/3-one-third.yaml")
    rollout.kubectl("rollout", "status", "deployment/foobar-v2", "--timeout=30s")
    world.conditions("foobar-rollout", namespace, BackendsReady="True")
    world.settle()
    through_proxy = world.request("foobar", 8080, namespace=namespace, via="proxy")
    with world.load(rollout.request("foobar-v2")):
        assert world.send(300, rollout.request()) == {"v1": 200, "v2": 100}
        assert world.send(300, through_proxy) == {"v1": 200, "v2": 100}


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ({"v1": "1", "v2": "0m"}, {"v1": 300}),
        ({"v1": "1", "v2": "500m"}, {"v1": 200, "v2": 100}),
        ({"v1": 1, "v2": "500m"}, {"v1": 200, "v2": 100}),
        ({"v1": "10m", "v2": "100m", "v3": "1500m"}, {"v1": 10, "v2": 100, "v3": 1500}),
    ],
)
def test_quantities(
    new_world: Callable[..., World], world: World, namespace: str, weights: dict[str, str], shares: dict[str, int]
) -> None:
    """R9, R10, D2, D24: early quantities are exact shares, written as 004 has it, with the bare version.

    Among three backends whose turns coincide, those at the edge of the counted requests may be on either side of it.
    """
    services = [external(name, world.backend(name)) for name in weights]
    world.apply(external("web"), *services, split("web", "web", weights, version="v1beta1"), namespace=namespace)
    assert world.send(sum(shares.values()), world.request("web", 8080, namespace=namespace)) == pytest.approx(
        shares, abs=1
    )
