"""Canaries and counts of requests for tests of rollouts."""

from collections.abc import Mapping
from typing import Any

from tests.make.objects import Object, canary

from headgate.resources.decode import check_stored
from headgate.resources.mesh.canary.types import Canary
from headgate.rollout.criteria import RecentLatencies
from headgate.rollout.messages import message
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import Facts, State
from headgate.rollout.transitions import following
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.histogram import bucket_of, gathered

ANALYSIS: Mapping[str, Any] = {"canary": "v2", "steps": [{"share": "50%"}], "interval": "30s"}


def website_canary(*, analysis: Mapping[str, Any] | None = ANALYSIS, **more: Any) -> Object:
    """Return a Canary of the Service `website`: 900m for v1 and 100m for v2, unless `more` says otherwise."""
    return canary("website", {"v1": "900m", "v2": "100m"}, analysis=analysis, **more)


def plan_of(obj: Object) -> RolloutPlan:
    """Return the plan of a valid Canary."""
    checked = check_stored(obj)
    assert isinstance(checked.value, Canary), checked.causes
    return RolloutPlan(checked.value)


def requests(count: int, *, failed: int = 0, slow: int = 0, slow_us: float = 900_000) -> Counts:
    """Return the counts of requests that take 10 ms, except slow ones."""
    latency = gathered({bucket_of(10_000): count - slow, bucket_of(slow_us): slow})
    return Counts.of({class_index(200): count - failed, class_index(503): failed}, latency)


class Rollout:
    """A rollout whose split is active at once, and whose time is `now`."""

    def __init__(self, obj: Object) -> None:
        self.plan: RolloutPlan = plan_of(obj)
        self.state = State()
        self.now = 1000.0
        self.latencies = RecentLatencies()
        self.look(0)

    def look(self, seconds: int = 1, *, v1: Counts | None = None, v2: Counts | None = None, **facts: Any) -> State:
        """Let a few seconds pass, each with these requests, or up to a transition."""
        for _ in range(max(seconds, 1)):
            self.now += min(seconds, 1)
            counts = {name: found for name, found in (("v1", v1), ("v2", v2)) if found}
            before, known = self.state, {"is_active": True, **facts}
            self.state = following(
                self.plan, before, Facts(self.now, counts=counts, latency=self.latencies.histogram, **known)
            )
            self.latencies = self.latencies.after(v1.latency if v1 else 0, self.plan.analysis)
            if self.state.has_moved(before):
                break
        return self.state

    def pass_step(self, **facts: Any) -> State:
        """Count good requests until the next transition, and let the next step be active."""
        self.look(300, v1=requests(90), v2=requests(10), **facts)
        return self.look(0)

    @property
    def message(self) -> str:
        return message(self.plan, self.state, self.now)
