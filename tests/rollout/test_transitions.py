"""A rollout moves on, waits, or goes back, exactly as far as the evidence allows (R108)."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from tests.make.rollouts import state_of
from tests.rollout.canaries import ANALYSIS, Rollout, plan_of, requests, website_canary

from headgate.durations import microseconds
from headgate.model.latency_buckets import BOUNDS_US
from headgate.resources.mesh.canary.types import StepKind
from headgate.resources.meta import Object
from headgate.rollout import criteria
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import Edit, Life, Pause, Phase, State, WebhookAnswer, state_fields, state_in
from headgate.rollout.status import canary_status
from headgate.telemetry.counters import histogram

MATCH = [{"name": "testers", "headers": {"x-tester": "yes"}}]
ALL_TO_V1 = {"v1": 1, "v2": 0}


@pytest.fixture
def rollout() -> Rollout:
    return Rollout(website_canary())


def edited(obj: Object, **spec: Any) -> RolloutPlan:
    return plan_of({**obj, "spec": {**obj["spec"], **spec}})


def test_without_analysis_the_split_has_the_weights_of_the_backends() -> None:
    rollout = Rollout(website_canary(analysis=None))
    assert rollout.state.phase is Phase.SPLIT
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}


def test_a_healthy_canary_passes_each_step_and_gets_all_requests(rollout: Rollout) -> None:
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}
    rollout.pass_step()
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.PROGRESSING, {"v1": 1, "v2": 1})
    rollout.pass_step()
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.PROMOTED, {"v1": 0, "v2": 1})
    assert rollout.message == "promoted: v2 gets all requests"


def test_requests_count_only_once_every_proxy_has_the_weights(rollout: Rollout) -> None:
    rollout.state = State()
    rollout.look(60, v1=requests(90), v2=requests(10, failed=10), is_active=False)
    assert rollout.state.since == 0
    assert "waiting until every proxy has the weights" in rollout.message
    rollout.look(1, v1=requests(90), v2=requests(10, failed=10))
    assert (rollout.state.since, rollout.state.seen.candidate.trials) == (rollout.now, 0)


@pytest.mark.parametrize("analysis", [ANALYSIS, None])
def test_a_rollout_names_the_services_that_it_waits_for(analysis: Mapping[str, Any] | None) -> None:
    rollout = Rollout(website_canary(analysis=analysis))
    rollout.state = State()
    rollout.look(1, is_active=False, ready=False, missing=("v1", "v2"))
    assert "waiting until the Services v1 and v2 exist" in rollout.message
    before = rollout.state
    rollout.look(1, is_active=False, ready=False, missing=("v2",))
    assert rollout.state.has_moved(before)
    assert "waiting until the Service v2 exists" in rollout.message
    rollout.look(1, is_active=False)
    assert "waiting until every proxy has the weights" in rollout.message


def test_the_first_seconds_of_a_step_are_no_lack_of_requests(rollout: Rollout) -> None:
    """The reports of the first 5 seconds are left out, and the first counts arrive in the next 5."""
    assert rollout.message == "step 1 of 3, 10% to v2: counting begins in 5 s"
    rollout.look(1)
    assert rollout.message == "step 1 of 3, 10% to v2: counting begins in 4 s"
    rollout.look(4)
    assert rollout.message == "step 1 of 3, 10% to v2: counting has begun, proxies report within 5 s"
    rollout.look(5)
    assert "no request to v2 has counted yet" in rollout.message


def test_without_requests_a_rollout_holds_and_says_so(rollout: Rollout) -> None:
    rollout.look(3600)
    assert (rollout.state.phase, rollout.state.step) == (Phase.PROGRESSING, 0)
    assert "no request to v2 has counted yet" in rollout.message


def test_a_holding_rollout_names_the_criteria_whose_need_is_unknown() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "success": {"min": "99%"}}))
    rollout.look(20, v2=requests(1))
    assert "v1 got no requests" in rollout.message
    assert "how many more requests are needed can't be estimated yet (success)" in rollout.message


def test_only_mistakes_need_attention(rollout: Rollout) -> None:
    rollout.plan = edited(website_canary(), paused=True)
    assert not rollout.look(1).needs_attention
    assert rollout.look(1, edit=Edit(weights={"v1": 1})).needs_attention
    assert not rollout.look(1, command="Abort/1").needs_attention
    assert rollout.look(1, command="Restart/2").phase is not Phase.ROLLED_BACK


def test_a_promoted_canary_has_no_counts_of_the_step_before(rollout: Rollout) -> None:
    rollout.pass_step()
    assert "requests" in status_of(rollout)["backends"][0]
    rollout.pass_step()
    assert status_of(rollout)["backends"] == [{"service": "v1", "weight": 0}, {"service": "v2", "weight": 1}]


def test_a_holding_rollout_names_the_missing_requests_and_the_time(rollout: Rollout) -> None:
    rollout.look(20, v1=requests(9), v2=requests(1))
    assert rollout.state.seen.candidate == (20, 0)
    found = rollout.message.partition("about ")[2]
    assert 300 < int(found.split()[0]) < 700
    assert found.endswith("at 1 per second")


def test_a_failing_canary_loses_all_requests_within_one_interval(rollout: Rollout) -> None:
    rollout.look(29, v1=requests(9), v2=requests(1, failed=1))
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.ROLLED_BACK, {"v1": 1, "v2": 0})
    assert rollout.state.cause == "success"
    rollout.look(0)
    assert rollout.message.startswith("rolled back at step 1 of 3, 10%: more requests fail than at v1; v2 failed ")


def test_a_canary_that_fails_thousands_of_requests_at_once_is_rolled_back(rollout: Rollout) -> None:
    rollout.look(1, v1=requests(90_000), v2=requests(10_000, failed=10_000))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "success")


def test_failures_of_both_versions_alike_are_no_reason_to_roll_back(rollout: Rollout) -> None:
    rollout.look(200, v1=requests(90, failed=27), v2=requests(10, failed=3))
    assert rollout.state.phase is Phase.PROGRESSING


def test_failures_of_one_incident_count_as_one_with_failures_within() -> None:
    """The same ten failures in a row roll back without the field."""
    assert incident(website_canary()).state.phase is Phase.ROLLED_BACK
    rollout = incident(website_canary(analysis={**ANALYSIS, "failuresWithin": "10s"}))
    assert (rollout.state.phase, rollout.state.seen.candidate.events) == (Phase.PROGRESSING, 10)
    for _ in range(8):  # an incident of the canary every half a minute, and none of the primary
        rollout.look(2, v1=requests(90), v2=requests(10, failed=5))
        rollout.look(28, v1=requests(90), v2=requests(10))
    assert rollout.state.phase is Phase.ROLLED_BACK


def incident(obj: Object) -> Rollout:
    rollout = Rollout(obj)
    rollout.look(20, v1=requests(90), v2=requests(10))
    rollout.look(2, v1=requests(90), v2=requests(10, failed=5))
    rollout.look(20, v1=requests(90), v2=requests(10))
    return rollout


def test_a_step_lasts_for_its_interval_and_needs_its_requests() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "minRequests": 5000}))
    rollout.look(29, v1=requests(900), v2=requests(100))
    assert (rollout.state.step, rollout.state.seen.candidate.trials) == (0, 2900)
    rollout.look(20, v1=requests(900), v2=requests(100))
    assert (rollout.state.step, rollout.state.seen.candidate.trials) == (0, 4900)
    rollout.look(1, v1=requests(900), v2=requests(100))
    assert rollout.state.step == 1


def test_the_literal_rule_of_the_specification_rolls_back_at_the_first_failure() -> None:
    """004: "Monitor for success rate to drop below 100 %. If it does, rollback"."""
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "success": {"min": "100%"}}))
    rollout.look(20, v1=requests(90, failed=9), v2=requests(10))
    assert rollout.state.phase is Phase.PROGRESSING
    rollout.look(1, v1=requests(90, failed=9), v2=requests(10, failed=1))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "success.min")
    assert "the success rate is below 100%" in rollout.message


def test_slow_requests_roll_back_by_an_absolute_limit() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "latencies": [{"percentile": "p99", "max": "500ms"}]}))
    rollout.look(60, v1=requests(90, slow=9), v2=requests(10, slow=1))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "p99.max")
    assert "the p99 latency is above 500ms" in rollout.message


def test_slow_requests_roll_back_by_a_limit_relative_to_the_primary() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "latencies": [{"percentile": "p99", "maxIncrease": "10%"}]}))
    rollout.look(5, v1=requests(90, slow=1), v2=requests(10))
    assert "more requests to v1 are needed to know its percentile (p99.maxIncrease)" in rollout.message
    rollout.look(15, v1=requests(90, slow=1), v2=requests(10))
    assert rollout.state.latency_limits
    rollout.look(60, v1=requests(90, slow=1), v2=requests(10, slow=2, slow_us=1_500_000))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "p99.maxIncrease")


def test_other_latency_buckets_do_not_shift_the_limit_of_a_running_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status has durations, which another version of headgate with other buckets understands."""
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "latencies": [{"percentile": "p99", "maxIncrease": "10%"}]}))
    rollout.look(20, v1=requests(90, slow=1), v2=requests(10))
    (limit,) = rollout.state.latency_limits.values()

    def microseconds_of(bounds: tuple[int, ...]) -> list[int]:
        for module in (criteria, histogram):
            monkeypatch.setattr(module, "BOUNDS_US", bounds)
        (criterion,) = (item for item in rollout.plan.criteria(rollout.state) if item.name == "p99.maxIncrease")
        assert criterion.bounds
        return [bounds[bound] for bound in criterion.bounds]

    before = microseconds_of(BOUNDS_US)
    assert before[0] == microseconds(limit)
    assert before[1] == pytest.approx(1.1 * before[0], rel=0.1)
    assert microseconds_of((10, 50, *BOUNDS_US)) == before


def test_a_state_in_a_status_keeps_all_evidence() -> None:
    """Go writes 1000.0 as 1000. Fields of other versions of headgate are skipped."""
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "latencies": [{"percentile": "p99", "maxIncrease": "10%"}]}))
    rollout.look(20, v1=requests(90, slow=1), v2=requests(10))
    fields = {**state_fields(rollout.state), "since": int(rollout.state.since), "other": {"p99.maxIncrease": 97}}
    assert state_in({"status": {"rollout": fields}}) == rollout.state


def test_the_fields_of_a_state_are_in_camel_case() -> None:
    state = State(lost_since=1.0, latency_limits={"p99.maxIncrease": "90ms"}, life=Life(was_ready=True, request_at=1.0))
    fields = state_fields(state)
    assert {*fields, *fields["life"]} == {"lostSince", "latencyLimits", "life", "wasReady", "requestAt"}


def test_a_paused_rollout_keeps_its_weights_and_its_evidence(rollout: Rollout) -> None:
    rollout.look(20, v1=requests(90), v2=requests(10))
    rollout.plan = edited(website_canary(), paused=True)
    rollout.look(300, v1=requests(90), v2=requests(10))
    rollout.look(300, v1=requests(90), v2=requests(10))
    assert (rollout.state.phase, rollout.state.pause, rollout.state.step) == (Phase.PAUSED, Pause.SPEC, 0)
    rollout.plan = edited(website_canary(), paused=False)
    rollout.look(1)
    assert (rollout.state.phase, rollout.state.step) == (Phase.PROGRESSING, 1)


def test_a_step_with_a_pause_waits_for_a_user() -> None:
    rollout = Rollout(
        website_canary(analysis={**ANALYSIS, "steps": [{"share": "10%", "pause": True}, {"share": "50%"}]})
    )
    rollout.look(300, v1=requests(90), v2=requests(10))
    assert (rollout.state.phase, rollout.state.pause) == (Phase.PAUSED, Pause.GATE)
    assert "`headgate rollout promote` continues" in rollout.message
    rollout.look(1, command="Promote/1")
    assert (rollout.state.phase, rollout.state.step, rollout.state.since) == (Phase.PROGRESSING, 1, 0)
    rollout.look(1, command="Promote/1")
    rollout.pass_step(command="Promote/1")
    assert rollout.state.phase is Phase.PROMOTED, "a command is obeyed once"


def test_a_failing_canary_is_rolled_back_while_a_step_waits_for_a_user() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "steps": [{"share": "10%", "pause": True}]}))
    rollout.look(300, v1=requests(90), v2=requests(10))
    rollout.look(60, v1=requests(90), v2=requests(10, failed=5))
    assert rollout.state.phase is Phase.ROLLED_BACK


@pytest.mark.parametrize(
    ("command", "phase", "text"),
    [
        ("Abort/1", Phase.ROLLED_BACK, "rolled back at step 1 of 3, 10%: aborted by a user"),
        ("Promote/1", Phase.PROGRESSING, "step 2 of 3, 50% to v2: "),
    ],
)
def test_commands_of_a_user_are_obeyed(rollout: Rollout, command: str, phase: Phase, text: str) -> None:
    rollout.look(1, command=command)
    assert rollout.state.phase is phase
    assert rollout.message.startswith(text)


def test_a_rolled_back_rollout_begins_again_when_a_user_restarts_it(rollout: Rollout) -> None:
    rollout.look(1, command="Abort/1")
    rollout.look(1, command="Restart/2")
    assert (rollout.state.phase, rollout.state.step, rollout.state.cause) == (Phase.PROGRESSING, 0, "")


def test_an_edited_split_pauses_the_rollout_until_a_user_resumes_it(rollout: Rollout) -> None:
    rollout.look(20, v1=requests(90), v2=requests(10), edit=Edit(weights={"v1": 1}))
    rollout.look(60, v1=requests(90), v2=requests(10, failed=10), is_active=False)
    assert (rollout.state.phase, rollout.state.pause) == (Phase.PAUSED, Pause.EDITED)
    assert "edited; `headgate rollout resume` sets them again" in rollout.message
    rollout.look(2, command="Resume/1", is_active=False, edit=Edit(weights={"v1": 1}))
    assert (rollout.state.phase, rollout.state.step, rollout.state.since) == (Phase.PROGRESSING, 0, 0)
    rollout.look(1)
    rollout.look(1, edit=Edit(weights={"v1": 1}))
    assert rollout.state.pause is Pause.EDITED, "the same edit again is another edit"


def test_another_version_begins_another_rollout(rollout: Rollout) -> None:
    rollout.look(1, command="Abort/1")
    backends = [{"service": "v1", "weight": 1}, {"service": "v3", "weight": 1}]
    rollout.plan = edited(website_canary(), backends=backends, analysis={**ANALYSIS, "canary": "v3", "steps": []})
    rollout.look(1)
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.PROGRESSING, {"v1": 1, "v3": 1})


def test_another_rule_begins_the_evidence_of_the_step_again(rollout: Rollout) -> None:
    rollout.pass_step()
    rollout.look(10, v1=requests(50), v2=requests(50))
    rollout.plan = edited(website_canary(), analysis={**ANALYSIS, "interval": "40s"})
    rollout.look(1)
    assert (rollout.state.step, rollout.state.seen.candidate.trials) == (1, 0)


def status_of(rollout: Rollout) -> Mapping[str, Any]:
    return canary_status(website_canary(), rollout.plan, rollout.state, rollout.now)


def test_other_rules_after_a_rollback_leave_its_reason_and_its_counts() -> None:
    latency = [{"percentile": "p99", "max": "500ms"}]
    obj = website_canary(analysis={**ANALYSIS, "steps": [{"share": "20%"}, {"share": "50%"}], "latencies": latency})
    rollout = Rollout(obj)
    rollout.pass_step()
    rollout.pass_step()
    rollout.look(60, v1=requests(90), v2=requests(10, slow=3))
    assert rollout.state.cause == "p99.max"
    rollout.plan = edited(obj, analysis={**ANALYSIS, "steps": [], "success": {"min": "99%"}})
    rollout.look(1)
    assert rollout.message.startswith(
        "rolled back at step 2 of 2, 100%: the criterion p99.max was violated; v2 failed 0"
    )
    status = status_of(rollout)
    assert (state_of(status), status["step"], status["stepCount"]) == ("RolledBack", 2, 2)
    assert [item["name"] for item in status["criteria"]] == ["success"]


@pytest.mark.parametrize("evidence", [{}, {"success": {"worse": {"stakes": [0.5, 0.2]}}}])
def test_evidence_of_another_version_of_headgate_begins_again(rollout: Rollout, evidence: Mapping[str, Any]) -> None:
    rollout.pass_step()
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(rollout.state))
    rollout.state = msgspec.convert({**written, "evidence": evidence}, State)
    rollout.look(1, v1=requests(90), v2=requests(10))
    assert (rollout.state.phase, rollout.state.step) == (Phase.PROGRESSING, 1)
    rollout.pass_step()
    assert rollout.state.phase is Phase.PROMOTED


def test_a_dry_run_reports_its_decision_and_changes_no_weight() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "dryRun": True}))
    rollout.look(300, v1=requests(90), v2=requests(10))
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}
    assert "a dry run, which would promote now" in rollout.message
    rollout.look(60, v1=requests(90), v2=requests(10, failed=9))
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}
    assert "a dry run, which would roll back: more requests fail than at v1" in rollout.message


def test_a_promoted_step_of_a_dry_run_keeps_the_share_of_the_split_until_the_last_one() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "dryRun": True}))
    rollout.look(command="Promote/1")
    rollout.look(2, v1=requests(90), v2=requests(10), command="Promote/1")
    assert rollout.state.step == 1
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}
    assert rollout.plan.share(rollout.state) == Fraction(1, 10)
    assert rollout.message.startswith("step 2 of 3, 10% to v2: ")
    rollout.look(command="Promote/2")
    assert rollout.plan.share(rollout.state) == 1
    assert rollout.plan.weights(rollout.state) == {"v1": 0, "v2": 1}


def test_with_a_baseline_the_canary_is_compared_with_it() -> None:
    backends = [{"service": name, "weight": weight} for name, weight in (("v1", 8), ("base", 1), ("v2", 1))]
    rollout = Rollout(website_canary(backends=backends, analysis={**ANALYSIS, "baseline": "base", "steps": []}))
    assert rollout.plan.reference(rollout.state) == "base"
    assert rollout.plan.weights(rollout.state) == {"v1": 8, "base": 1, "v2": 1}
    rollout.look(60, v1=requests(80, failed=80), v2=requests(10))
    assert rollout.state.seen == ((0, 0), (600, 0))


SILENT, AGREES, REFUSES = (
    {"check": WebhookAnswer(*found)} for found in ((None, "no response"), (True, "status 200"), (False, "status 403"))
)


def hook_of(when: str) -> Mapping[str, Any]:
    return {"name": "check", "when": when, "service": "tests", "port": 80}


def hooked(when: str, **analysis: Any) -> Rollout:
    return Rollout(website_canary(analysis={**ANALYSIS, "webhooks": [hook_of(when)], **analysis}))


def test_before_a_webhook_agrees_the_canary_gets_no_request() -> None:
    rollout = hooked("Before")
    rollout.look(60, answers=SILENT)
    assert rollout.plan.weights(rollout.state) == {"v1": 1, "v2": 0}
    assert "waiting until webhooks agree: check (no response)" in rollout.message
    rollout.look(1, answers=AGREES)
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}


def test_a_step_needs_the_agreement_of_webhooks() -> None:
    rollout = hooked("During")
    rollout.look(1, answers=SILENT)
    rollout.look(300, v1=requests(90), v2=requests(10), answers=SILENT)
    assert rollout.state.step == 0
    assert "the evidence is complete, waiting until webhooks agree: check (no response)" in rollout.message
    rollout.look(1, answers=AGREES)
    assert rollout.state.step == 1


@pytest.mark.parametrize("when", ["Before", "During"])
def test_a_webhook_that_refuses_rolls_back(when: str) -> None:
    rollout = hooked(when)
    rollout.look(1, answers=REFUSES)
    assert rollout.state.phase is Phase.ROLLED_BACK
    assert rollout.message == "rolled back at step 1 of 3, 10%: webhook check refused it (status 403)"


def test_a_webhook_that_refuses_changes_no_weight_in_a_dry_run() -> None:
    rollout = hooked("During", dryRun=True)
    rollout.look(200, v1=requests(90), v2=requests(10), answers=REFUSES)
    rollout.look(200, v1=requests(90), v2=requests(10), answers=REFUSES)
    assert rollout.plan.weights(rollout.state) == {"v1": 9, "v2": 1}
    assert "waiting until webhooks agree: check (status 403)" in rollout.message


def test_a_webhook_that_refuses_rolls_back_a_paused_rollout_once_it_continues() -> None:
    rollout = hooked("During")
    running = rollout.plan
    rollout.plan = edited(website_canary(), analysis={**ANALYSIS, "webhooks": [hook_of("During")]}, paused=True)
    rollout.look(5, answers=REFUSES)
    rollout.look(5, answers=REFUSES)
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.PAUSED, {"v1": 9, "v2": 1})
    rollout.plan = running
    rollout.look(1, answers=REFUSES)
    assert rollout.state.phase is Phase.ROLLED_BACK


@pytest.mark.parametrize("when", ["Before", "After"])
def test_a_restarted_rollout_asks_its_webhooks_again(when: str) -> None:
    rollout = hooked(when)
    rollout.look(1, command="Abort/1")
    rollout.look(1, command="Restart/2", answers=REFUSES)
    assert rollout.state.phase is Phase.PROGRESSING


def test_webhooks_learn_the_end_once() -> None:
    rollout = hooked("After")
    rollout.look(1, command="Abort/1")
    rollout.look(1, answers=SILENT)
    assert rollout.state.informed == ()
    rollout.look(1, answers=AGREES)
    assert rollout.state.informed == ("check",)


def test_copies_decide_the_first_step_and_no_user_reaches_the_canary() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "mirror": "20%"}))
    assert (rollout.plan.kind(rollout.state), rollout.plan.weights(rollout.state)) == (StepKind.MIRROR, ALL_TO_V1)
    rollout.look(20, v1=requests(90), v2=requests(10))
    assert rollout.state.seen.candidate.trials == 0, "users' requests to the canary are no copies"
    assert rollout.message.startswith("step 1 of 4, copies of 20% of the requests to v2: v2 got no requests")
    rollout.look(300, v1=requests(90), copies=requests(18))
    rollout.look(0)
    assert (rollout.plan.kind(rollout.state), rollout.plan.weights(rollout.state)) == (
        StepKind.SHARE,
        {"v1": 9, "v2": 1},
    )
    rollout.look(20, v1=requests(90), v2=requests(10), copies=requests(18, failed=18))
    assert rollout.state.phase is Phase.PROGRESSING, "copies count in their step only"


def test_failing_copies_roll_back_before_a_user_reaches_the_canary() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "mirror": "20%"}))
    rollout.look(29, v1=requests(90), copies=requests(18, failed=1))
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.ROLLED_BACK, {"v1": 1, "v2": 0})
    assert rollout.plan.kind(rollout.state) is StepKind.SHARE, "the copies end"
    assert rollout.message.startswith("rolled back at step 1 of 4, copies of 20% of the requests: more requests fail ")


def test_slow_copies_roll_back_by_a_limit_of_latency() -> None:
    latency = [{"percentile": "p90", "max": "500ms"}]
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "mirror": "20%", "latencies": latency}))
    rollout.look(60, v1=requests(90), copies=requests(18, slow=9))
    assert (rollout.state.phase, rollout.state.cause) == (Phase.ROLLED_BACK, "p90.max")


def test_matching_requests_are_judged_between_the_copies_and_the_first_share() -> None:
    rollout = Rollout(website_canary(analysis={**ANALYSIS, "mirror": "20%", "matches": MATCH}))
    rollout.look(300, v1=requests(90), copies=requests(18))
    rollout.look(0)
    assert (rollout.plan.kind(rollout.state), rollout.plan.weights(rollout.state)) == (StepKind.MATCH, ALL_TO_V1)
    assert "step 2 of 5, the requests that fit spec.analysis.matches to v2" in rollout.message
    rollout.pass_step()
    assert (rollout.state.step, rollout.plan.weights(rollout.state)) == (2, {"v1": 9, "v2": 1})


def test_before_the_first_share_the_canary_is_compared_with_the_primary_and_not_with_an_unused_baseline() -> None:
    backends = [{"service": name, "weight": weight} for name, weight in (("v1", 8), ("base", 1), ("v2", 1))]
    rollout = Rollout(
        website_canary(backends=backends, analysis={**ANALYSIS, "baseline": "base", "matches": MATCH, "steps": []})
    )
    assert rollout.plan.reference(rollout.state) == "v1"
    assert rollout.plan.weights(rollout.state) == {"v1": 1, "base": 0, "v2": 0}
    rollout.pass_step()
    assert rollout.plan.reference(rollout.state) == "base"


def test_other_rules_do_not_replace_the_agreement_of_webhooks() -> None:
    rollout = hooked("Before")
    rollout.plan = edited(website_canary(), analysis={**ANALYSIS, "webhooks": [{**hook_of("Before"), "port": 81}]})
    rollout.look(2)
    assert (rollout.state.pause, rollout.plan.weights(rollout.state)) == (Pause.BEFORE, {"v1": 1, "v2": 0})


def test_other_rules_do_not_replace_edited_weights(rollout: Rollout) -> None:
    rollout.look(2, edit=Edit(weights={"v1": 1}))
    rollout.plan = edited(website_canary(), analysis={**ANALYSIS, "interval": "40s"})
    rollout.look(2, edit=Edit(weights={"v1": 1}))
    assert (rollout.state.phase, rollout.state.pause) == (Phase.PAUSED, Pause.EDITED)


def test_removed_steps_do_not_promote_the_canary(rollout: Rollout) -> None:
    rollout.plan = edited(website_canary(), analysis={**ANALYSIS, "steps": [{"share": "20%"}, {"share": "50%"}]})
    rollout.look(0)
    rollout.pass_step()
    rollout.pass_step()
    assert rollout.state.step == 2
    rollout.plan = edited(website_canary(), analysis=ANALYSIS)
    rollout.look(2)
    assert (rollout.state.phase, rollout.plan.weights(rollout.state)) == (Phase.PROGRESSING, {"v1": 1, "v2": 1})


def test_the_state_in_a_status_is_the_whole_state(rollout: Rollout) -> None:
    rollout.look(20, v1=requests(90, failed=1), v2=requests(10, failed=1))
    written: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(rollout.state))
    assert msgspec.convert(written, State) == rollout.state
