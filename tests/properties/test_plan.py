"""A plan names each request that two worlds treat differently, and each of its examples is treated differently.

Each example has three worlds, so six pairs. `FUZZ_WORLDS=1700 pytest tests/properties/test_plan.py -s --timeout 0` compares
10,200 pairs in each of the two tests, and prints the numbers.
"""

import os
from collections import Counter
from itertools import permutations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.differential.access_worlds import access_worlds, calls
from tests.differential.plan_expectation import (
    allowed_in,
    example_outcomes,
    example_routes,
    includes,
    is_usual,
    mesh_of,
    names_call,
    treatments,
)
from tests.differential.plan_worlds import ANY_WORLD, families
from tests.differential.sidecar_lab import CALLERS, STRANGERS
from tests.differential.worlds import requests

from headgate.plan.access import access_changes
from headgate.plan.traffic import request_classes

WORLDS = int(os.environ.get("FUZZ_WORLDS", "15"))
RUN = settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), deadline=None, print_blob=False)


def test_a_plan_names_each_request_that_is_treated_differently():
    seen = Counter()

    @RUN
    @given(families(ANY_WORLD), st.lists(requests().filter(lambda sent: sent.via != "proxy"), min_size=10, max_size=25))
    def each(found, sent):
        for meshes in permutations([mesh_of(world) for world in found], 2):
            classes = list(request_classes(*meshes))
            for item in filter(is_usual, sent):
                both = treatments(meshes, item)
                if both and both[0] != both[1]:
                    assert any(includes(one, item, meshes) for one in classes), item
                    seen.update(requests=1)
            for one in classes:
                if one.example:
                    assert one.before != one.after
                    assert example_routes(one, meshes) == (one.old_route, one.new_route), one
            seen.update(pairs=1, classes=len(classes), undecided=sum(one.example is None for one in classes))

    each()
    assert seen["requests"]
    assert seen["undecided"] * 50 < seen["classes"], seen
    _report("requests", seen)


def test_a_plan_names_each_call_that_is_allowed_in_one_world_only():
    seen = Counter()

    @RUN
    @given(access_worlds(), access_worlds(), st.data())
    def each(before, other, data):
        mixed = before.objects | {key: obj for key, obj in other.objects.items() if not data.draw(st.integers(0, 3))}
        called = data.draw(st.lists(calls(before), min_size=5, max_size=12))
        worlds = ((before.objects, before.settings), (other.objects, other.settings), (mixed, before.settings))
        for meshes in permutations([mesh_of(*world) for world in worlds], 2):
            seen.update(_compare_access(meshes, called))

    each()
    assert seen["calls"]
    _report("calls", seen)


def _compare_access(meshes, called):
    """Compare the changes of access between two meshes with the model; return the numbers of comparisons."""
    seen = Counter()
    changes = list(access_changes(*meshes))
    for call in called:
        identity = CALLERS.get(call.caller, "")
        allowed = [] if call.caller in STRANGERS else allowed_in(meshes, call, identity)
        if allowed and allowed[0] != allowed[1]:
            kind = "lost" if allowed[0] else "gained"
            named = [item for item in changes if item.kind == kind and names_call(item, call, identity, meshes)]
            assert named, call
            seen.update(calls=1)
    for item in changes:
        if item.example:
            expected = [True, False] if item.kind == "lost" else [False, True]
            assert all(found == expected for found in example_outcomes(item, meshes)), item
    seen.update(pairs=1, changes=len(changes), undecided=sum(item.example is None for item in changes))
    return seen


def _report(what, seen):
    """Print the numbers of a long run."""
    if WORLDS > 100:
        print(f"{what}: {dict(seen)}")  # noqa: T201
