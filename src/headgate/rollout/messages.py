"""The sentences of a rollout for people: in its status, in Events and in `headgate rollout` (R108)."""

import math
from collections.abc import Iterator, Sequence

from headgate import formatting
from headgate.durations import formatted
from headgate.formatting import pluralize
from headgate.resources.mesh.canary.analysis import Analysis, When
from headgate.resources.mesh.canary.types import StepKind
from headgate.resources.meta import timestamp
from headgate.rollout.criteria import Criterion, Verdict, requests_missing
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.state import BY_USER, LOST, REPORT_S, WEBHOOK, Loss, Pause, Phase, State
from headgate.rollout.transitions import judgment
from headgate.statistics.betting import Sample
from headgate.statistics.intervals import rate_interval

_DIGITS = 3
_LONGEST_FORECAST_S = 30 * 86400.0
_CRITERIA = {
    "success": "more requests fail than at {reference}",
    "success.min": "the success rate is below {limit}",
    "clientErrors": "more requests get a client error (4xx) than at {reference}",
    "max": "the {percentile} latency is above {limit}",
    "maxIncrease": "the {percentile} latency is more than {limit} above that of {reference}",
}


def failures(seen: Sample, service: str, error: float) -> str:
    """Return the failed requests of a backend, with the interval of the rate: `v2 failed 3 of 120 requests (...)`."""
    if not seen.trials:
        return f"{service} got no requests"
    text = f"{service} failed {seen.events} of {pluralize(seen.trials, 'request')}"
    low, high = rate_interval(seen.events, seen.trials, error)
    observed = formatting.share(seen.events / seen.trials)
    return f"{text} ({observed}, {formatting.share(1 - error)} interval {formatting.share(low)} to {formatting.share(high)})"


def violated(plan: RolloutPlan, state: State, cause: str) -> str:
    """Return what is wrong with the canary, from the names of the criteria that it violates."""
    return " and ".join(_violation(plan, state, name) for name in cause.split(", "))


def message(plan: RolloutPlan, state: State, now: float) -> str:
    """Return the state of a rollout in one or two sentences, with the numbers behind it."""
    analysis = plan.analysis
    if analysis is None:
        return "every proxy has the weights of the backends" if state.since else f"waiting until {_awaited(state)}"
    if state.phase is Phase.PROMOTED:
        by = f" {state.cause}" if state.cause else ""
        what = f"promoted{by}: {analysis.canary} gets all requests"
        return what if state.since else f"{what} as soon as {_awaited(state)}"
    if state.phase is Phase.ROLLED_BACK:
        return f"rolled back at {_step(plan, state)}: {_reason(plan, analysis, state)}"
    return f"{_step(plan, state)} to {analysis.canary}: {'; '.join(_parts(plan, analysis, state, now))}"


def _parts(plan: RolloutPlan, analysis: Analysis, state: State, now: float) -> Iterator[str]:
    if state.pause is Pause.EDITED:
        yield "paused, because the weights of the TrafficSplit were edited; `headgate rollout resume` sets them again"
        return
    if state.pause is Pause.BEFORE:
        yield _waiting_for(state, plan.hooks(When.BEFORE))
        return
    if state.lost:
        yield _lost(plan, analysis, state)
        return
    if not state.since and (state.missing or state.life.ready):
        yield f"waiting until {_awaited(state)}"
        return
    if not state.life.ready:
        yield f"{analysis.canary} has no ready endpoint yet, so it gets no requests"
        return
    if any(sample.trials for sample in state.seen):
        yield _compared(plan, analysis, state)
    judged = judgment(plan, state)
    if analysis.dry_run and judged.verdict is Verdict.ROLL_BACK:
        yield f"a dry run, which would roll back: {violated(plan, state, ', '.join(judged.criteria))}"
    elif state.pause is Pause.GATE:
        yield "the step is passed and has a pause; `headgate rollout promote` continues"
    elif state.pause is Pause.SPEC:
        yield "paused by spec.paused"
    else:
        yield from _missing(plan, analysis, state, now, judged.criteria if judged.verdict is Verdict.HOLD else ())


def _awaited(state: State) -> str:
    """Return what a step waits for before requests count."""
    if not state.missing:
        return "every proxy has the weights"
    if len(state.missing) == 1:
        return f"the Service {state.missing[0]} exists"
    return f"the Services {', '.join(state.missing[:-1])} and {state.missing[-1]} exist"


def _missing(plan: RolloutPlan, analysis: Analysis, state: State, now: float, lacking: Sequence[str]) -> Iterator[str]:
    """Yield what the next step needs, and how long this takes at the rate of requests in this step."""
    requests, compared = state.seen.candidate.trials, state.seen.reference.trials
    if not requests and compared and plan.expected(state, compared):
        yield f"{plan.reference(state)} got {pluralize(compared, 'request')} in this step, and {analysis.canary} none yet"
        return
    if not requests and (waiting := _counting(state, now)):
        yield waiting
        return
    if not requests:
        yield f"no request to {analysis.canary} has counted yet, and without requests nothing is decided"
        yield f"requests to {plan.spec.service} count, also those through a Gateway whose route has this backend"
        return
    by_name = {criterion.name: criterion for criterion in plan.criteria(state)}
    needs = [_needed(plan, state, by_name[name]) for name in lacking]
    needs.append(max(analysis.min_requests - requests, 0))
    estimates = [number for number in needs if number is not None]
    left = state.since + analysis.interval_seconds - now
    if unready := [name for name in lacking if not by_name[name].is_ready]:
        yield f"more requests to {plan.reference(state)} are needed to know its percentile ({', '.join(unready)})"
    elif None in needs:
        unknown = [name for name, number in zip(lacking, needs, strict=False) if number is None]
        yield f"how many more requests are needed can't be estimated yet ({', '.join(unknown)})"
    elif max(estimates):
        rate = requests / max(now - state.since, 1.0)
        seconds = min(max(estimates) / rate, _LONGEST_FORECAST_S)
        yield f"about {max(estimates)} more requests to it are needed, {formatted(round(seconds))} at {rate:.{_DIGITS}g} per second"
    elif left > 0:
        yield f"the evidence is complete, the step lasts until {timestamp(state.since + analysis.interval_seconds)}"
    elif analysis.dry_run and not state.replies:
        yield "a dry run, which would promote now"
    elif hooks := plan.hooks(When.DURING):
        yield f"the evidence is complete, {_waiting_for(state, hooks)}"


def _counting(state: State, now: float) -> str:
    """Return when the first requests of a step count; empty once their reports must have arrived."""
    intervals = state.report_intervals(now)
    if intervals == 0:
        return f"counting begins in {math.ceil(state.since + REPORT_S - now)} s"
    return f"counting has begun, proxies report within {REPORT_S:g} s" if intervals == 1 else ""


def _waiting_for(state: State, hooks: Sequence[str]) -> str:
    rows = (f"{name} ({state.replies[name]})" if name in state.replies else name for name in hooks)
    return f"waiting until webhooks agree: {', '.join(rows)}"


def _needed(plan: RolloutPlan, state: State, criterion: Criterion) -> int | None:
    return requests_missing(criterion, state.evidence[criterion.name], plan.thresholds([criterion]).fine)


def _compared(plan: RolloutPlan, analysis: Analysis, state: State) -> str:
    error = float(analysis.tolerated_error)
    reference, canary = state.seen
    text = failures(canary, analysis.canary, error)
    if state.life.unconnected:
        text += f", {pluralize(state.life.unconnected, 'attempt')} without a connection among them"
    return f"{text}, {failures(reference, plan.reference(state), error)}"


def _lost(plan: RolloutPlan, analysis: Analysis, state: State) -> str:
    """Return how the canary was lost, and what follows."""
    since, end = (timestamp(at) for at in (state.lost_since, state.lost_since + analysis.interval_seconds))
    follows = "the rollout is held" if plan.is_held else f"it is rolled back at {end} unless it returns"
    return f"{_loss(plan, analysis, state)} since {since}; {follows}"


def _loss(plan: RolloutPlan, analysis: Analysis, state: State) -> str:
    if state.lost is Loss.ENDPOINTS:
        return f"{analysis.canary} has had no ready endpoint"
    missed = pluralize(state.life.missed, "request")
    return f"{analysis.canary} has got no request while {plan.reference(state)} got {missed}"


def _reason(plan: RolloutPlan, analysis: Analysis, state: State) -> str:
    if state.cause == BY_USER:
        return f"aborted {state.cause}"
    if state.cause == LOST:
        return f"{_loss(plan, analysis, state)} for {formatted(round(analysis.interval_seconds))}"
    if state.cause.startswith(WEBHOOK):
        replies = "; ".join(state.replies.values())
        return f"{state.cause} refused it ({replies})"
    return f"{violated(plan, state, state.cause)}; {_compared(plan, analysis, state)}"


def _step(plan: RolloutPlan, state: State) -> str:
    step = plan.step(state)
    what = {
        StepKind.SHARE: formatting.share(step.share),
        StepKind.MIRROR: f"copies of {plan.analysis.mirror if plan.analysis else ''} of the requests",
        StepKind.MATCH: "the requests that fit spec.analysis.matches",
    }
    return f"step {state.step + 1} of {len(plan.shares)}, {what[step.kind]}"


def _violation(plan: RolloutPlan, state: State, name: str) -> str:
    first, _, kind = name.partition(".")
    if plan.analysis is None or name not in [criterion.name for criterion in plan.criteria(State())]:
        return f"the criterion {name} was violated"  # the spec has changed since
    if not kind or first == "success":
        return _CRITERIA[name].format(reference=plan.reference(state), limit=plan.analysis.success.min)
    limits = [latency for latency in plan.analysis.latencies if latency.percentile == first]
    limit = next((latency.max if kind == "max" else latency.max_increase for latency in limits), "")
    return _CRITERIA[kind].format(percentile=first, limit=limit, reference=plan.reference(state))
