"""Compare routing, access, commands and plans in random worlds for FUZZ_SECONDS, or until interrupted (`make fuzz`)."""

import os
import sys
import time
from collections import Counter

import pytest
from tests.differential import access_comparison, commands_comparison, plan_comparison, routing_comparison
from tests.differential.gateway_lab import GatewayLab
from tests.differential.sidecar_lab import SidecarLab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(0),
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),  # it would hide the failing world
]

SECONDS = float(os.environ.get("FUZZ_SECONDS", "inf"))


def test_envoy_and_the_model_agree_in_random_worlds_until_the_time_limit(
    lab: GatewayLab,
    sidecar_lab: SidecarLab,
    running: commands_comparison.RunningMembers,
    capsys: pytest.CaptureFixture[str],
) -> None:
    end = time.monotonic() + SECONDS
    routing, access, commands, plans = (Counter[str]() for _ in range(4))
    while time.monotonic() < end:
        routing += routing_comparison.compare_worlds(lab)
        access += access_comparison.compare_worlds(sidecar_lab)
        commands += commands_comparison.compare_worlds(running)
        plans += plan_comparison.compare_pairs(lab)
        with capsys.disabled():
            sys.stdout.write(
                f"routing {dict(routing)}, access {dict(access)}, commands {dict(commands)}, plans {dict(plans)}\n"
            )
            sys.stdout.flush()
