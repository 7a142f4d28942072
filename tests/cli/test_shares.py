from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from tests.compiler.split_meshes import split_world
from tests.make import objects
from tests.make.values import compiled, snapshot

from headgate.cli.shares import ExpectedShares, fits, of_outcome, of_request
from headgate.compiler.explain_request import explain_request
from headgate.resources.request_spec import RequestSpec

SPLIT = "default/web"


def shares(*world: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return the shares on port 80 of `web`, which are the same for all requests and for an explained request."""
    result = compiled(*world)
    (outcome,) = result.report.outcomes
    request = RequestSpec(url="http://web:80/")
    explanation = explain_request(result, snapshot(*world), request)
    (split,) = (obj for obj in world if obj["kind"] == "TrafficSplit")
    of_all, of_one = of_outcome(outcome), of_request("default/web", 80, explanation, split)
    assert (
        (of_all.service, of_all.port, of_all.split)
        == (of_one.service, of_one.port, of_one.split)
        == ("default/web", 80, SPLIT)
    )
    assert dict(of_all.shares) == dict(of_one.shares)
    return dict(of_all.shares)


def test_weights_are_exact_shares() -> None:
    """R7, R8."""
    assert shares(*split_world({"v1": 1000, "v2": 500, "v3": 0})) == {
        "default/v1": Fraction(2, 3),
        "default/v2": Fraction(1, 3),
        "default/v3": 0,
    }


def test_the_other_backends_share_the_requests_of_an_excluded_backend() -> None:
    """R43."""
    assert shares(*split_world({"v1": 1, "v2": 1}, ports={"v2": (81,)})) == {"default/v1": 1, "default/v2": 0}


def test_without_resolved_backends_the_root_service_gets_all_requests() -> None:
    """R42."""
    assert shares(objects.service("web", 80), objects.split("web", {"v1": 1})) == {"default/v1": 0, "default/web": 1}


def test_a_backend_without_endpoints_that_keeps_its_weight_is_a_failing_share() -> None:
    """D9."""
    world = split_world({"v1": 3, "v2": 1}, dead=("v2",), no_endpoints="fail")
    assert shares(*world) == {"default/v1": Fraction(3, 4), "(503)": Fraction(1, 4), "default/v2": 0}


def test_backends_with_the_same_name_in_two_namespaces_are_distinct() -> None:
    """D12."""
    there = objects.backed_service("v1", ("", "10.2.0.1"), number=80, namespace="other")
    allowed = objects.grant(
        "grant", ("split.smi-spec.io", "TrafficSplit", "default"), ("", "Service"), namespace="other"
    )
    world = [*split_world({"v1": 1, "v1.other": 1})[:4], *there, allowed]
    assert shares(*world) == {"default/v1": Fraction(1, 2), "other/v1": Fraction(1, 2)}


@pytest.mark.parametrize("weights", [{"v1": 0}, {"v1": 1}])
def test_requests_that_fail_by_no_choice_of_the_user_are_no_expected_share_of_a_request(
    weights: Mapping[str, int],
) -> None:
    """D9, D10. All weights are 0, or no backend is ready: `headgate try` reports the 503 responses as failures."""
    world = split_world(weights, dead=("v1",))
    explanation = explain_request(compiled(*world), snapshot(*world), RequestSpec(url="http://web:80/"))
    assert of_request("default/web", 80, explanation, world[1]).shares == (("default/v1", 0),)


def test_without_a_split_the_service_gets_all_requests() -> None:
    world = objects.backed_service("web", ("", "10.1.0.1"), number=80)
    explanation = explain_request(compiled(*world), snapshot(*world), RequestSpec(url="http://web:80/"))
    expected = of_request("default/web", 80, explanation)
    assert (expected.split, expected.route, expected.shares) == ("", "", (("default/web", Fraction(1)),))


def want(**shares: Fraction | int) -> ExpectedShares:
    return ExpectedShares(
        service="default/web", port=80, split="", shares=tuple((k, Fraction(v)) for k, v in shares.items())
    )


@pytest.mark.parametrize(
    ("counts", "fit"),
    [
        ({"v1": 900, "v2": 100}, True),
        ({"v1": 929, "v2": 71}, False),  # 3 * sqrt(0.09 / 1000) is 2.85 %
        ({"v1": 928, "v2": 72}, True),
        ({"v1": 1000}, False),
        ({}, False),
        ({"v1": 900, "v2": 100, "stranger": 1}, False),
    ],
)
def test_counts_fit_a_share_within_three_sigma(counts: Mapping[str, int], fit: bool) -> None:
    assert all(row.fits for row in fits(want(v1=Fraction(9, 10), v2=Fraction(1, 10)), counts)) is fit


def test_a_backend_with_weight_0_must_get_no_request() -> None:
    rows = fits(want(v1=1, v2=0), {"v1": 9999, "v2": 1})
    assert [row.fits for row in rows] == [False, False]
    assert all(row.fits for row in fits(want(v1=1, v2=0), {"v1": 10000}))
