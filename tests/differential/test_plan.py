"""Send the examples of plans to a real Envoy: before and after a change, it treats them as the plan says.

It also sends requests that no class of the plan includes: Envoy must treat them alike in both worlds. A family of worlds has many
ordered pairs, and Envoy gets each world once, so `FUZZ_WORLDS=100 pytest tests/differential/test_plan.py -s --timeout 0` compares
3,000 pairs in some minutes; `--hypothesis-seed` selects other ones.
"""

import os
from collections import Counter
from itertools import permutations
from typing import NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.differential.test_routing import address_of, check
from tests.differential.worlds import Sent, requests
from tests.properties.plan_expectation import includes, is_usual, treatments
from tests.properties.test_plan import ANY_WORLD, families

from headgate.plan.traffic import CLOSED, request_classes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

WORLDS = int(os.environ.get("FUZZ_WORLDS", "2"))  # families of worlds
SIZE = 6  # worlds of a family, which have 30 ordered pairs
EXAMPLES = 12  # of each plan


class Compared(NamedTuple):
    """The positions of two worlds, the examples of their plan, and requests that no class of it includes."""

    places: tuple[int, int]
    examples: list
    outside: list

    def requests(self):
        """Return all requests that both worlds get."""
        return [*(sent for _, sent in self.examples), *self.outside]


def test_envoy_treats_the_examples_of_a_plan_as_the_plan_says(lab):
    seen = compare_pairs(lab)
    if WORLDS > 20:
        print(f"plans and Envoy: {dict(seen)}")  # noqa: T201


def compare_pairs(lab):
    """Compare the pairs of random families; return the numbers of pairs, examples, and requests outside of the classes.

    `sent` counts the requests that Envoy got; several pairs have the same ones.
    """
    seen = Counter()

    @settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), print_blob=False, deadline=None)
    @given(
        families(ANY_WORLD, SIZE),
        st.lists(requests().filter(lambda sent: sent.via != "proxy"), max_size=6, unique=True),
    )
    def each(found, more):
        for world in found:
            note("---\n".join(yaml.safe_dump(lab.placed(obj), sort_keys=False) for obj in world.values()))
        meshes = [lab.compiled(world).mesh for world in found]
        compared = [_compared(meshes, places, more) for places in permutations(range(SIZE), 2)]
        for pair in compared:
            _assert_stated(pair, meshes, lab)
        for index, world in enumerate(found):
            mesh = lab.serve(world).mesh
            several = dict.fromkeys(sent for pair in compared if index in pair.places for sent in pair.requests())
            for sent in several:
                check(lab, mesh, sent)
            seen.update(sent=len(several))
        for pair in compared:
            seen.update(pairs=1, examples=len(pair.examples), outside=len(pair.outside))

    each()
    assert seen["examples"]
    return seen


def _compared(meshes, places, more):
    """Return the plan of a change between two worlds, as requests to send."""
    both = [meshes[place] for place in places]
    classes = list(request_classes(*both))
    examples = [(item, sent) for item in classes if item.example and (sent := _sent(item))][:EXAMPLES]
    outside = [sent for sent in more if is_usual(sent) and not any(includes(item, sent, both) for item in classes)]
    return Compared(places, examples, outside)


def _assert_stated(pair, meshes, lab):
    """Assert that the model treats the requests as the plan says."""
    both = [meshes[place] for place in pair.places]
    for item, sent in pair.examples:
        for mesh, stated in zip(both, (item.before, item.after), strict=True):
            if address_of(mesh, sent, lab):
                assert stated == CLOSED or _same(treatments([mesh], sent)[0], stated), (item, sent)
    for sent in pair.outside:
        found = treatments(both, sent)
        assert not found or found[0] == found[1], sent


def _same(found, stated):
    """Say whether a treatment of the model, or the statuses of the proxy's answers, is the treatment of a plan."""
    return found == stated if not isinstance(found, list) else found == [item.status for item in stated.receivers]


def _sent(item):
    """Return the example of a class as a request of the lab.

    Returns None if the lab adds a header that would change it, or if it has no host for the TLS server name.
    """
    request, entry = item.example, item.entry
    if any(name in {"content-length", "expect", "connection", "upgrade"} for name, _ in request.headers):
        return None
    host = request.authority.partition(":")[0].lower()
    if not host and _is_secure(entry.port):
        return None
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
