"""Compare access control by the model with that of a real sidecar, in random worlds (R67 to R76, D15, D21).

`make fuzz` compares more worlds. A failure prints the smallest failing world.
"""

import os
from collections import Counter

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from tests.differential.access_expectation import disagreement, expected, sent
from tests.differential.access_worlds import scenarios
from tests.differential.http_exchange import Message
from tests.differential.sidecar_lab import DOMAIN, Caller

from headgate.model.routing import PortRef, server_name

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

WORLDS = int(os.environ.get("FUZZ_WORLDS", "50"))


def test_a_sidecar_allows_the_calls_that_the_model_allows(sidecar_lab):
    compare_worlds(sidecar_lab)


def compare_worlds(lab):
    """Compare random worlds; return the numbers of worlds and calls."""
    seen = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(scenarios())
    def each(scenario):
        world, found = scenario
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.objects.values()))
        workload = lab.serve(world)
        for call in found:
            check(lab, workload, call)
        seen.update(worlds=1, calls=len(found))

    each()
    return seen


def check(lab, workload, call):
    """Make a call, and compare its effects with the model."""
    wanted = expected(workload, call)
    counted = made(lab, call, counts_policies=bool(wanted.rules))
    found = disagreement(wanted, counted, is_http1=call.version != "2")
    assert not found, f"{call}: {found}\ncounted {counted}\nwanted {wanted}"


def made(lab, call, *, counts_policies):
    """Make a call, and return its effects as `Counted`."""
    request = sent(call)
    message = Message(call.version, call.method, request.target, call.authority, request.headers)
    name = server_name(PortRef(f"default/{call.service[0]}", call.service[1]), DOMAIN) if call.service else None
    return lab.call(call.port, message, Caller(call.caller, name, call.mesh_alpn), counts_policies=counts_policies)
