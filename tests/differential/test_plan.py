"""Send the examples of plans to a real Envoy: before and after a change, it treats them as the plan says.

It also sends requests that no class of the plan includes: Envoy must treat them alike in both worlds.
"""

import os
from collections import Counter

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.test_routing import address_of, check
from tests.differential.worlds import Sent, requests
from tests.properties.plan_expectation import includes, is_usual, treatments
from tests.properties.test_plan import ANY_WORLD, pairs

from headgate.plan.traffic import CLOSED, request_classes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

WORLDS = int(os.environ.get("FUZZ_WORLDS", "12"))
EXAMPLES = 12  # of each plan


def test_envoy_treats_the_examples_of_a_plan_as_the_plan_says(lab):
    compare_pairs(lab)


def compare_pairs(lab):
    """Compare random pairs of worlds; return the numbers of pairs, examples, and requests outside of the classes."""
    seen = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)
    @given(pairs(ANY_WORLD), st.lists(requests().filter(lambda sent: sent.via != "proxy"), max_size=6, unique=True))
    def each(found, more):
        for world in found:
            note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        meshes = [lab.serve(world).mesh for world in found]
        classes = list(request_classes(*meshes))
        examples = [(item, sent) for item in classes if item.example and (sent := _sent(item))][:EXAMPLES]
        outside = [
            sent for sent in more if is_usual(sent) and not any(includes(item, sent, meshes) for item in classes)
        ]
        for index in (1, 0):  # the second world is served already
            mesh = meshes[index] if index else lab.serve(found[0]).mesh
            for item, sent in examples:
                if address_of(mesh, sent, lab):
                    check(lab, mesh, sent)
                    stated = (item.before, item.after)[index]
                    assert stated == CLOSED or _same(treatments([mesh], sent)[0], stated), (item, sent)
            for sent in outside:
                check(lab, mesh, sent)
        for sent in outside:
            both = treatments(meshes, sent)
            assert not both or both[0] == both[1], sent
        seen.update(pairs=1, examples=len(examples), outside=len(outside))

    each()
    assert seen["examples"]
    return seen


def _same(found, stated):
    """Say whether a treatment of the model, or the statuses of the proxy's answers, is the treatment of a plan."""
    return found == stated if not isinstance(found, list) else found == [item.status for item in stated.receivers]


def _sent(item):
    """Return the example of a class as a request of the lab; None if the lab adds a header that would change it."""
    request, entry = item.example, item.entry
    if any(name in {"content-length", "expect", "connection", "upgrade"} for name, _ in request.headers):
        return None
    host = request.authority.partition(":")[0].lower()
    return Sent(
        service=entry.name if entry.kind == "Service" else "default/a",
        port=entry.port,
        via="gateway" if entry.kind == "Gateway" else "address",
        authority=request.authority,
        method=request.method,
        target=request.target,
        headers=request.headers,
        server_name=host if entry.kind == "Gateway" and _is_secure(entry.port) else "",
    )


def _is_secure(port):
    return port in {8443, 8444, 8445}
