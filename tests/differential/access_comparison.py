"""Compare access control by the model with that of a real sidecar, in random worlds or for one call."""

import os
from collections import Counter

import yaml
from hypothesis import HealthCheck, given, note, settings
from tests.differential.access_expectation import disagreement, expected, sent
from tests.differential.access_worlds import Call, scenarios
from tests.differential.http_exchange import Message
from tests.differential.sidecar_lab import DOMAIN, AccessWorld, Counted, LabCaller, SidecarLab

from headgate.model.authorities import server_name
from headgate.model.routing import PortRef, Workload

WORLDS = int(os.environ.get("FUZZ_WORLDS", "25"))


def compare_worlds(lab: SidecarLab) -> Counter[str]:
    """Compare random worlds; return the numbers of worlds and calls."""
    seen: Counter[str] = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(scenarios())
    def each(scenario: tuple[AccessWorld, list[Call]]) -> None:
        world, calls = scenario
        note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.objects.values()))
        workload = lab.serve(world)
        for call in calls:
            check(lab, workload, call)
        seen.update(worlds=1, calls=len(calls))

    each()
    return seen


def check(lab: SidecarLab, workload: Workload, call: Call) -> None:
    """Make a call, and compare its effects with the model."""
    wanted = expected(workload, call)
    counted = _made(lab, call, counts_policies=bool(wanted.rules))
    difference = disagreement(wanted, counted, is_http1=call.version != "2")
    assert not difference, f"{call}: {difference}\ncounted {counted}\nwanted {wanted}"


def _made(lab: SidecarLab, call: Call, *, counts_policies: bool) -> Counted:
    """Make a call, and return its effects."""
    request = sent(call)
    message = Message(call.version, call.method, request.target, call.authority, request.headers)
    name = server_name(PortRef(f"default/{call.service[0]}", call.service[1]), DOMAIN) if call.service else None
    return lab.call(call.port, message, LabCaller(call.caller, name, call.mesh_alpn), counts_policies=counts_policies)
