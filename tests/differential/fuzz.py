"""Compare routing, access, commands and plans in random worlds for FUZZ_SECONDS, or until interrupted (`make fuzz`)."""

import os
import sys
import time
from collections import Counter

import pytest
from tests.differential import test_access, test_explain_and_try, test_plan, test_routing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("FUZZ_SECONDS", "inf"))


def test_envoy_and_the_model_agree_in_random_worlds_until_the_time_limit(lab, sidecar_lab, running, capsys):
    end = time.monotonic() + SECONDS
    routing, access, commands, plans = Counter(), Counter(), Counter(), Counter()
    while time.monotonic() < end:
        routing += test_routing.compare_worlds(lab)
        access += test_access.compare_worlds(sidecar_lab)
        commands += test_explain_and_try.compare_worlds(running)
        plans += test_plan.compare_pairs(lab)
        with capsys.disabled():
            sys.stdout.write(
                f"routing {dict(routing)}, access {dict(access)}, commands {dict(commands)}, plans {dict(plans)}\n"
            )
            sys.stdout.flush()
