"""`headgate explain` predicts the results of `headgate try`, for requests in random worlds.

Both use one running headgate. `make fuzz` compares more worlds. A failure prints the smallest failing world.
"""

import pytest
from tests.differential.commands_comparison import RunningMembers, compare_worlds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]


def test_explain_predicts_the_results_of_try(running: RunningMembers) -> None:
    compare_worlds(running)
