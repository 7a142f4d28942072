"""Random worlds until they are interrupted, or for FUZZ_SECONDS: routing, access, and commands in turn (`make fuzz`)."""

import os
import sys
import time
from collections import Counter

import pytest
from tests.differential import test_access, test_explain_and_try, test_worlds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

SECONDS = float(os.environ.get("FUZZ_SECONDS", "inf"))


def test_on_and_on(lab, sidecar_lab, running, capsys):
    end = time.monotonic() + SECONDS
    routing, access, commands = Counter(), Counter(), Counter()
    while time.monotonic() < end:
        routing += test_worlds.hold(lab)
        access += test_access.hold(sidecar_lab)
        commands += test_explain_and_try.hold(running)
        with capsys.disabled():
            sys.stdout.write(f"routing {dict(routing)}, access {dict(access)}, commands {dict(commands)}\n")
            sys.stdout.flush()
