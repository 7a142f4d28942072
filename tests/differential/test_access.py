"""A real sidecar allows the calls that the model allows, in random worlds (R67 to R76, D15, D21).

`make fuzz` compares more worlds. A failure prints the smallest failing world.
"""

import pytest
from tests.differential.access_comparison import compare_worlds
from tests.differential.sidecar_lab import SidecarLab

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def test_a_sidecar_allows_the_calls_that_the_model_allows(sidecar_lab: SidecarLab) -> None:
    compare_worlds(sidecar_lab)
