"""Checks of Canaries that their schema can't express (004; R109, D19)."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from headgate import durations
from headgate.errors import Cause, DecodeError
from headgate.quantity import parse_percentage, parse_share
from headgate.resources.mesh.canary.analysis import SuccessCriteria
from headgate.resources.mesh.canary.types import CanarySpec
from headgate.resources.meta import Object, parsed, part, rows
from headgate.resources.schema.declared import rule_causes
from headgate.resources.smi.http_route_group import match_causes
from headgate.resources.smi.split_fields import shared_causes
from headgate.resources.weights import quantity

_HALF = Fraction(1, 2)
_SHORTEST_WINDOW_MS = 1000
_ANALYSIS = "spec.analysis"
_ROLES = frozenset({"spec.backends", f"{_ANALYSIS}.canary", f"{_ANALYSIS}.baseline"})
_DEFAULTS = SuccessCriteria()
_Backends: TypeAlias = Mapping[str, tuple[int, object]]
"""The index and the written weight of each backend, by its name."""


class _Weights(NamedTuple):
    """The weights of the backends in the first step; `baseline` is None if there is none."""

    canary: Fraction
    primary: Fraction
    baseline: Fraction | None

    @property
    def share(self) -> Fraction:
        """The share of the canary."""
        total = self.canary + self.primary + (self.baseline or 0)
        return self.canary / total if total else Fraction(0)


def canary_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a Canary."""
    spec = part(obj, "spec")
    broken = tuple(rule_causes(CanarySpec, spec, "spec"))
    yield from broken
    yield from shared_causes(obj, quantities=True)
    analysis = spec.get("analysis")
    if not isinstance(analysis, Mapping):
        return
    backends = {str(row.get("service")): (index, row.get("weight")) for index, row in rows(spec.get("backends"))}
    has_roles = not any(cause.field in _ROLES for cause in broken)
    weights = _weights(analysis, backends) if has_roles else None
    if weights:
        yield from _weight_causes(analysis, backends, weights)
        yield from _first_step_causes(analysis, backends, weights)
    yield from _step_causes(analysis, weights.share if weights else None)
    yield from _trial_causes(analysis)
    yield from _limit_causes(analysis)
    yield from _success_causes(part(analysis, "success"))
    yield from _latency_causes(analysis.get("latencies"))


def _weights(analysis: Mapping[str, Any], backends: _Backends) -> _Weights | None:
    """Return the weights of a sound number of backends with sound names; None if a weight has a mistake."""
    try:
        weights = {service: quantity(weight, "") for service, (_, weight) in backends.items()}
    except DecodeError:  # `shared_causes` reports it
        return None
    canary, baseline = weights.pop(str(analysis.get("canary")), None), weights.pop(str(analysis.get("baseline")), None)
    return (
        _Weights(canary, next(iter(weights.values())), baseline) if canary is not None and len(weights) == 1 else None
    )


def _weight_causes(analysis: Mapping[str, Any], backends: _Backends, weights: _Weights) -> Iterator[Cause]:
    """Yield the mistakes in the weights of the first step."""
    canary, baseline = analysis.get("canary"), analysis.get("baseline")
    for service, (index, _) in backends.items():
        where = f"spec.backends[{index}].weight"
        if service == baseline and weights.baseline != weights.canary:
            message = f"must be that of the canary, {backends[str(canary)][1]}: the baseline has the canary's share"
            yield Cause(where, message)
        elif service not in (canary, baseline) and not weights.primary:
            yield Cause(where, "must be above 0: the primary serves the users until the canary is promoted")


def _first_step_causes(analysis: Mapping[str, Any], backends: _Backends, weights: _Weights) -> Iterator[Cause]:
    """Yield a mistake if the canary would get all traffic before any evidence."""
    shares = [parsed(step.get("share"), parse_share) for _, step in rows(analysis.get("steps"))]
    if weights.primary and not weights.canary and analysis.get("stepShare") is None and shares in ([], [1]):
        message = "is 0, so the canary would get all traffic without evidence; raise it, or add a step below 100%"
        yield Cause(f"spec.backends[{backends[str(analysis['canary'])][0]}].weight", message)


def _step_causes(analysis: Mapping[str, Any], first: Fraction | None) -> Iterator[Cause]:
    """Yield a mistake if the first share is too low. `first` is the canary's share by the weights, None if it is unknown."""
    field, value = "maxShare", analysis.get("maxShare")
    if analysis.get("steps"):
        row = next(
            ((index, step) for index, step in rows(analysis["steps"]) if parsed(step.get("share"), parse_share)), None
        )
        field, value = (f"steps[{row[0]}].share", row[1]["share"]) if row else ("", None)
    share = parsed(value, parse_share)
    if share and (fault := _first_fault(share, first)):
        yield Cause(f"{_ANALYSIS}.{field}", fault)


def _first_fault(share: Fraction, first: Fraction | None) -> str:
    """Return why a step's share is too low after the first step; empty if it is not."""
    if first is None or share >= first:
        return ""
    percent = f"{float(first * 100):.4g}%"
    return f"must be at least {percent}, the canary's share by the weights of spec.backends; or lower its weight there"


def _trial_causes(analysis: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the mistakes in the steps before the first share."""
    matches = analysis.get("matches")
    if matches is not None:
        yield from match_causes(matches, f"{_ANALYSIS}.matches")
    for index, match in rows(matches):
        if isinstance(match.get("headers"), list):
            yield Cause(f"{_ANALYSIS}.matches[{index}].headers", "must be a map of header names to regular expressions")


def _limit_causes(analysis: Mapping[str, Any]) -> Iterator[Cause]:
    error = parsed(analysis.get("errorProbability"), parse_percentage)
    if error is not None and not 0 < error < _HALF:
        message = f"must be above 0% and below 50%, not {analysis['errorProbability']}; write for example 1%"
        yield Cause(f"{_ANALYSIS}.errorProbability", message)
    within = parsed(analysis.get("failuresWithin"), durations.milliseconds)
    if within is not None and within < _SHORTEST_WINDOW_MS:
        yield Cause(f"{_ANALYSIS}.failuresWithin", "must be at least 1s: proxies report their counts every second")
    if within and parsed(part(analysis, "success").get("maxDrop"), parse_percentage):
        message = "must be 0% with failuresWithin, which compares incidents and no rates; remove one of both"
        yield Cause(f"{_ANALYSIS}.success.maxDrop", message)


def _success_causes(success: Mapping[str, Any]) -> Iterator[Cause]:
    where = f"{_ANALYSIS}.success"
    drop, margin, least = (
        parsed(success.get(name), parse)
        for name, parse in (("maxDrop", parse_percentage), ("margin", parse_percentage), ("min", parse_share))
    )
    if margin == 0:
        yield Cause(
            f"{where}.margin", "must be above 0%: no number of requests rules out every drop; write for example 1%"
        )
    if least == 1 and drop:
        message = "has no effect, because min is 100%: any failure rolls back; remove maxDrop, or lower min"
        yield Cause(f"{where}.maxDrop", message)
    drop = parse_percentage(_DEFAULTS.max_drop) if drop is None else drop
    margin = parse_percentage(_DEFAULTS.margin) if margin is None else margin
    if drop + margin >= 1:
        field = "margin" if success.get("margin") is not None and drop < 1 else "maxDrop"
        yield Cause(f"{where}.{field}", "is too high: maxDrop and margin together must be below 100%")


def _latency_causes(latencies: object) -> Iterator[Cause]:
    seen: dict[str, int] = {}
    for index, criterion in rows(latencies):
        where = f"{_ANALYSIS}.latencies[{index}]"
        if parsed(criterion.get("max"), durations.milliseconds) == 0:
            yield Cause(f"{where}.max", "must be longer than 0; write for example 500ms")
        first = seen.setdefault(str(criterion.get("percentile")).rstrip("0"), index)
        if first != index:
            message = f"is that of latencies[{first}] too; write max and maxIncrease of a percentile into one entry"
            yield Cause(f"{where}.percentile", message)
