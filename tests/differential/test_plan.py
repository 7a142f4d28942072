"""Before and after a change, a real Envoy treats the examples of its plan as the plan says.

A family of worlds has many ordered pairs, and Envoy gets each world once, so
`FUZZ_WORLDS=100 pytest tests/differential/test_plan.py -s --timeout 0` compares 3,000 pairs in some minutes;
`--hypothesis-seed` selects other ones.
"""

import pytest
from tests.differential.gateway_lab import GatewayLab
from tests.differential.plan_comparison import WORLDS, compare_pairs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def test_envoy_treats_the_examples_of_a_plan_as_the_plan_says(lab: GatewayLab) -> None:
    seen = compare_pairs(lab)
    if WORLDS > 20:
        print(f"plans and Envoy: {dict(seen)}")  # noqa: T201
