"""Decoded Canaries have the exact shares, weights and limits of a rollout (R109, D19, D24)."""

from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.decoding import check
from tests.resources.canary import WITH_BASELINE, canary_with
from tests.resources.seeds import CANARY_004

from headgate.resources.mesh.canary.types import Canary, CanarySpec
from headgate.resources.versions import from_hub


def spec_of(obj: Any) -> CanarySpec:
    found = check(obj)
    assert found.causes == ()
    assert isinstance(found.value, Canary)
    return found.value.spec


def percent(spec: CanarySpec) -> list[str]:
    return [f"{float(share * 100):g}" for share in spec.shares]


def test_the_canary_of_the_specification_is_a_split_of_one_to_nine() -> None:
    """R109; 004's example as it is written."""
    obj = yaml.safe_load(CANARY_004)
    spec = spec_of(obj)
    assert (spec.fixed_weights, spec.analysis, spec.shares) == ((1, 9), None, ())
    hub = check(obj).hub
    assert hub is not None
    assert hub["apiVersion"] == "headgate.dev/v1beta1"
    assert hub["spec"]["backends"][0]["weight"] == "100m"
    assert from_hub(hub, "", "v1beta1") == obj


@pytest.mark.parametrize(
    ("weights", "whole"),
    [(("900m", "100m"), (9, 1)), ((90, 10), (90, 10)), (("1", "0m"), (1, 0)), ((0.5, "1.5"), (1, 3)), ((0, 0), (0, 0))],
)
def test_without_analysis_the_weights_have_the_ratio_of_the_quantities(weights: Any, whole: tuple[int, int]) -> None:
    backends = [{"service": f"v{index}", "weight": weight} for index, weight in enumerate(weights)]
    assert spec_of(canary_with(backends=backends)).fixed_weights == whole


@pytest.mark.parametrize(
    ("analysis", "shares"),
    [
        ({}, "10 100"),
        ({"steps": [{"share": "20%"}, {"share": "50%"}]}, "10 20 50 100"),
        ({"steps": [{"share": "10%"}, {"share": "50%"}]}, "10 50 100"),
        ({"steps": [{"share": "50%"}, {"share": "100%"}]}, "10 50 100"),
        ({"stepShare": "10%", "maxShare": "50%"}, "10 20 30 40 50 100"),
        ({"stepShare": "25%", "maxShare": "50%"}, "10 35 50 100"),
        ({"stepShare": "60%", "maxShare": "100%"}, "10 70 100"),
        ({"stepShare": "5%", "maxShare": "10%"}, "10 100"),
    ],
)
def test_the_steps_rise_from_the_share_of_the_backends_to_all_traffic(analysis: Any, shares: str) -> None:
    assert percent(spec_of(canary_with(analysis))) == shares.split()


def test_a_canary_without_weight_begins_with_the_share_of_the_next_step() -> None:
    """004's workflow starts with 0m."""
    backends = [{"service": "website-v1", "weight": 1}, {"service": "website-v2", "weight": "0m"}]
    assert percent(spec_of(canary_with({"steps": [{"share": "5%"}]}, backends=backends))) == ["5", "100"]
    assert percent(spec_of(canary_with({"stepShare": "30%", "maxShare": "50%"}, backends=backends))) == [
        "30",
        "50",
        "100",
    ]


def test_shares_are_exact() -> None:
    backends = [{"service": "website-v1", "weight": 2}, {"service": "website-v2", "weight": 1}]
    spec = spec_of(canary_with({"stepShare": "10%", "maxShare": "50%"}, backends=backends))
    third = Fraction(1, 3)
    assert spec.shares == (third, third + Fraction(1, 10), Fraction(1, 2), 1)
    assert [spec.weights_at(share) for share in spec.shares] == [(2, 1), (17, 13), (1, 1), (0, 1)]


def test_a_step_with_a_pause_is_gated_also_as_the_first_and_the_last_one() -> None:
    steps = [{"share": "10%", "pause": True}, {"share": "50%"}, {"share": "100%", "pause": True}]
    assert [step.pause for step in spec_of(canary_with({"steps": steps})).rollout] == [True, False, True]
    assert not any(step.pause for step in spec_of(canary_with({"stepShare": "10%", "maxShare": "50%"})).rollout)


def test_the_baseline_has_the_share_of_the_canary_until_the_last_step() -> None:
    spec = spec_of(canary_with({"baseline": "website-base", "steps": [{"share": "50%"}]}, backends=WITH_BASELINE))
    assert spec.primary == "website-v1"
    assert [spec.weights_at(share) for share in spec.shares] == [(8, 1, 1), (0, 1, 1), (0, 1, 0)]
    assert spec.weights_at(Fraction(0)) == (1, 0, 0)


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.lists(st.integers(1, 100), unique=True).map(sorted),
    st.integers(0, 100),
)
def test_the_weights_of_each_step_have_exactly_its_share(
    primary: int, first: int, listed: list[int], rise: int
) -> None:
    backends = [{"service": "website-v1", "weight": f"{primary}m"}, {"service": "website-v2", "weight": f"{first}m"}]
    above = [share for share in listed if share * (primary + first) >= 100 * first]
    assume(first or above not in ([], [100]))
    analysis: Any = {"steps": [{"share": f"{share}%"} for share in above]}
    if rise and above:
        analysis = {"stepShare": f"{rise}%", "maxShare": f"{above[-1]}%"}
    spec = spec_of(canary_with(analysis, backends=backends))
    assert list(spec.shares) == sorted(set(spec.shares))
    assert spec.shares[-1] == 1
    for share in spec.shares:
        old, new = spec.weights_at(share)
        assert Fraction(new, old + new) == share


def test_absent_fields_of_the_analysis_have_the_documented_values() -> None:
    analysis = spec_of(canary_with({})).analysis
    assert analysis is not None
    assert (analysis.interval_seconds, analysis.min_requests, analysis.dry_run) == (60, 20, False)
    assert analysis.tolerated_error == Fraction(1, 100)
    success = analysis.success
    assert (success.tolerated_drop, success.excluded_drop, success.least) == (0, Fraction(1, 100), None)
    assert (analysis.baseline, analysis.latencies) == ("", ())


def test_limits_are_exact_numbers() -> None:
    spec = spec_of(
        canary_with(
            {
                "interval": "1m30s",
                "errorProbability": "0.1%",
                "success": {"maxDrop": "0.5%", "margin": "2%", "min": "99.5%"},
                "latencies": [{"percentile": "p99", "max": "500ms"}, {"percentile": "p999", "maxIncrease": "10%"}],
            }
        )
    )
    analysis = spec.analysis
    assert analysis is not None
    assert (analysis.interval_seconds, analysis.tolerated_error) == (90, Fraction(1, 1000))
    success = analysis.success
    assert success.tolerated_drop == Fraction(1, 200)
    assert success.excluded_drop == Fraction(5, 200)
    assert success.least == Fraction(199, 200)
    absolute, relative = analysis.latencies
    assert (absolute.quantile, absolute.max_microseconds, absolute.tolerated_increase) == (
        Fraction(99, 100),
        500_000,
        None,
    )
    assert (relative.quantile, relative.max_microseconds, relative.tolerated_increase) == (
        Fraction(999, 1000),
        None,
        Fraction(1, 10),
    )
