"""A real Envoy routes as the model predicts, for requests in random worlds.

`make fuzz` compares more worlds. A failure prints the smallest failing world.
"""

import pytest
from tests.differential.gateway_lab import GatewayLab
from tests.differential.routing_comparison import compare_worlds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def test_envoy_routes_as_the_model_predicts(lab: GatewayLab) -> None:
    compare_worlds(lab)
