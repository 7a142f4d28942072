from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from tests.cli.conftest import make_status
from tests.make import objects

from headgate.cli.shares import ExpectedShares, expected_shares, fits

ROOT = "default/website"


def decided(weights: Mapping[str, int], reasons: Mapping[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a split with the status that headgate writes for port 8080; backends with a reason get no traffic."""
    split = objects.split("website", weights, metadata=metadata)
    backends = [{"service": name.split(".")[0], "weight": weight} for name, weight in weights.items()]
    for backend in backends:
        if reason := (reasons or {}).get(str(backend["service"])):
            backend["reason"] = reason
    return {**split, "status": {**make_status(), "ports": [{"port": 8080, "backends": backends}]}}


def shares(split: Any, port: int = 8080) -> dict[str, Fraction]:
    return dict(expected_shares(ROOT, port, [split]).shares)


def test_weights_are_exact_shares() -> None:
    """R7, R8."""
    assert shares(decided({"v1": 1000, "v2": 500, "v3": 0})) == {
        "default/v1": Fraction(2, 3),
        "default/v2": Fraction(1, 3),
        "default/v3": 0,
    }


def test_the_other_backends_share_the_requests_of_an_excluded_backend() -> None:
    """R43."""
    split = decided({"v1": 1, "v2": 1}, {"v2": "PortMismatch"})
    assert shares(split) == {"default/v1": 1, "default/v2": 0}


def test_without_resolved_backends_the_root_service_gets_all_requests() -> None:
    """R42."""
    assert shares(decided({"v1": 1}, {"v1": "BackendNotFound"})) == {ROOT: 1}


def test_a_backend_without_endpoints_that_keeps_its_weight_is_a_failing_share() -> None:
    """D9."""
    split = decided({"v1": 3, "v2": 1}, {"v2": "NoReadyEndpoints"}, annotations={"headgate.dev/no-endpoints": "fail"})
    assert shares(split) == {"default/v1": Fraction(3, 4), "(503)": Fraction(1, 4), "default/v2": 0}


def test_backends_with_the_same_name_in_two_namespaces_are_distinct() -> None:
    """D12."""
    assert shares(decided({"web": 1, "web.other": 1})) == {"default/web": Fraction(1, 2), "other/web": Fraction(1, 2)}


@pytest.mark.parametrize("case", ["no split", "other port", "refused"])
def test_without_an_accepted_split_the_service_gets_all_requests(case: str) -> None:
    split = decided({"v1": 1})
    if case == "refused":
        split["status"]["conditions"][0]["status"] = "False"
    found = expected_shares(ROOT, 9090 if case == "other port" else 8080, [] if case == "no split" else [split])
    assert (found.split, found.shares) == ("", ((ROOT, Fraction(1)),))


def want(**shares: Fraction | int) -> ExpectedShares:
    return ExpectedShares(service=ROOT, port=8080, split="", shares=tuple((k, Fraction(v)) for k, v in shares.items()))


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
