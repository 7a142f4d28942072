"""No decision favors a canary that is not alive, and a canary that stays lost is rolled back (D33)."""

from typing import Any

import pytest
from tests.rollout.canaries import ANALYSIS, Rollout, requests, website_canary

from headgate.durations import seconds
from headgate.rollout.state import Pause, Phase, State
from headgate.telemetry.counters.counts import BROKEN_OFF, FAILED, UNANSWERED, UNCONNECTED, Counts

INTERVAL = "1m"


def rollout_with(**analysis: Any) -> Rollout:
    return Rollout(website_canary(analysis={**ANALYSIS, "interval": INTERVAL, **analysis}))


@pytest.fixture
def rollout() -> Rollout:
    """Return a rollout of two steps whose evidence of the first one is complete before its interval ends."""
    started = rollout_with()
    started.look(55, v1=requests(900), v2=requests(100))
    assert (started.state.step, started.state.phase) == (0, Phase.PROGRESSING)
    assert "the evidence is complete" in started.message
    return started


def unconnected(count: int) -> Counts:
    """Return attempts that found no program, and whose requests the primary answered."""
    return Counts.of({UNCONNECTED: count})


def test_a_step_does_not_end_while_the_canary_has_no_ready_endpoint(rollout: Rollout) -> None:
    lost_at = rollout.now + 1
    rollout.look(1, v1=requests(100), ready=False)
    rollout.look(40, v1=requests(100), ready=False)
    assert (rollout.state.step, rollout.state.phase, rollout.state.lost_since) == (0, Phase.PROGRESSING, lost_at)
    assert "v2 has had no ready endpoint since " in rollout.message
    assert "it is rolled back at " in rollout.message
    assert "more requests" not in rollout.message


def test_a_canary_that_stays_lost_for_an_interval_is_rolled_back(rollout: Rollout) -> None:
    rollout.look(1, v1=requests(100), ready=False)
    rollout.look(59, v1=requests(100), ready=False)
    assert rollout.state.phase is Phase.PROGRESSING
    rollout.look(1, v1=requests(100), ready=False)
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.ROLLED_BACK, {"v1": 1, "v2": 0})
    assert rollout.message == "rolled back at step 1 of 3, 10%: v2 has had no ready endpoint for 1m0s"


def test_a_canary_that_returns_continues(rollout: Rollout) -> None:
    rollout.look(1, v1=requests(100), ready=False)
    rollout.look(30, v1=requests(100), ready=False)
    rollout.look(1, v1=requests(90), v2=requests(10), ready=True)
    assert not rollout.state.lost
    rollout.look(60, v1=requests(90), v2=requests(10), ready=True)
    assert rollout.state.step == 1


def test_a_passed_step_with_a_gate_is_rolled_back_too() -> None:
    rollout = rollout_with(steps=[{"share": "10%", "pause": True}, {"share": "50%"}])
    rollout.look(120, v1=requests(90), v2=requests(10))
    assert rollout.state.pause is Pause.GATE
    rollout.look(1, v1=requests(100), ready=False)
    rollout.look(60, v1=requests(100), ready=False)
    assert rollout.state.phase is Phase.ROLLED_BACK


def test_the_last_step_does_not_promote_a_dead_canary() -> None:
    rollout = rollout_with()
    rollout.look(120, v1=requests(90), v2=requests(10))
    rollout.look(0)
    assert rollout.state.step == 1
    rollout.look(55, v1=requests(50), v2=requests(50))
    rollout.look(1, v1=requests(100), ready=False)
    rollout.look(59, v1=requests(100), ready=False)
    assert rollout.state.phase is Phase.PROGRESSING
    rollout.look(1, v1=requests(100), ready=False)
    assert rollout.state.phase is Phase.ROLLED_BACK


def test_a_canary_that_has_never_been_ready_is_awaited() -> None:
    rollout = rollout_with()
    rollout.state = State()
    rollout.look(0, ready=False)
    rollout.look(600, v1=requests(100), ready=False)
    assert (rollout.state.phase, rollout.state.step) == (Phase.PROGRESSING, 0)
    assert rollout.message == "step 1 of 3, 10% to v2: v2 has no ready endpoint yet, so it gets no requests"


def test_a_silent_canary_is_lost_while_the_primary_gets_requests(rollout: Rollout) -> None:
    rollout.look(62, v1=requests(100))
    assert (rollout.state.step, rollout.state.phase) == (0, Phase.PROGRESSING)
    assert "v2 has got no request while v1 got " in rollout.message
    rollout.look(60, v1=requests(100))
    assert rollout.state.phase is Phase.ROLLED_BACK


def test_a_pause_of_all_traffic_is_no_loss() -> None:
    rollout = rollout_with()
    rollout.look(3, v1=requests(900), v2=requests(100))
    rollout.look(600)
    assert (rollout.state.step, rollout.state.phase, rollout.state.lost) == (0, Phase.PROGRESSING, None)
    rollout.look(4, v1=requests(900), v2=requests(100))
    assert rollout.state.step == 1


def test_few_requests_of_the_primary_are_no_loss() -> None:
    """At 10 %, none of 100 requests may reach the canary when each of many proxies has sent a few."""
    rollout = rollout_with()
    rollout.look(2, v1=requests(90), v2=requests(10))
    rollout.look(150, v1=requests(1))
    assert not rollout.state.lost


def test_attempts_without_a_connection_are_failures_although_the_primary_answered() -> None:
    rollout = rollout_with()
    rollout.look(59, v1=requests(100), v2=unconnected(10))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "success")
    assert "v2 failed " in rollout.message
    assert "attempts without a connection among them" in rollout.message


def test_a_request_that_ended_with_a_failed_attempt_counts_once() -> None:
    last = Counts.of({FAILED: 1, UNANSWERED: 1}).plus(Counts.of({BROKEN_OFF: 1}))
    rollout = rollout_with()
    rollout.look(1, v1=requests(10), v2=last)
    assert rollout.state.seen.candidate == (1, 1)


@pytest.mark.parametrize("held", [{"dryRun": True}, {}])
def test_a_held_rollout_keeps_its_weights_and_says_that_the_canary_is_lost(held: dict[str, bool]) -> None:
    obj = website_canary(analysis={**ANALYSIS, **held}, paused=not held)
    rollout = Rollout(obj)
    rollout.look(20, v1=requests(90), v2=requests(10))
    rollout.look(1, v1=requests(100), ready=False)
    rollout.look(600, v1=requests(100), ready=False)
    assert rollout.state.phase is not Phase.ROLLED_BACK
    assert "v2 has had no ready endpoint since " in rollout.message
    assert "the rollout is held" in rollout.message


def test_client_errors_are_compared_when_the_spec_says_so() -> None:
    def notfound(count: int, missing: int) -> Counts:
        return Counts.of({1: count - missing, 3: missing})

    alike = rollout_with()
    alike.look(120, v1=notfound(90, 0), v2=notfound(10, 10))
    assert alike.state.step == 1
    compared = rollout_with(clientErrors={})
    compared.look(59, v1=notfound(90, 0), v2=notfound(10, 10))
    assert (compared.state.phase, compared.state.cause) == (Phase.ROLLED_BACK, "clientErrors")
    assert "more requests get a client error (4xx) than at v1" in compared.message
    same = rollout_with(clientErrors={})
    same.look(200, v1=notfound(900, 90), v2=notfound(100, 10))
    assert same.state.step == 1


def test_the_latency_limit_follows_the_primary() -> None:
    """A busy start of the primary loosens the limit only while it lasts."""
    rollout = rollout_with(latencies=[{"percentile": "p99", "maxIncrease": "10%"}])
    rollout.look(20, v1=requests(90, slow=10), v2=requests(10, slow=1))
    busy = seconds(rollout.state.latency_limits["p99.maxIncrease"])
    rollout.look(30, v1=requests(90), v2=requests(10))
    assert seconds(rollout.state.latency_limits["p99.maxIncrease"]) < busy
    rollout.look(30, v1=requests(90), v2=requests(10, slow=3, slow_us=70_000))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "p99.maxIncrease")
