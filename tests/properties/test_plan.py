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
    consumers_of,
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
from tests.differential.worlds import Sent, requests
from tests.make.objects import backend_ref, port, route, service, service_parent

from headgate.plan.access import access_changes
from headgate.plan.traffic import request_classes
from headgate.resources.registry import key_of

WORLDS = int(os.environ.get("FUZZ_WORLDS", "15"))
RUN = settings(max_examples=WORLDS, suppress_health_check=list(HealthCheck), deadline=None, print_blob=False)
A_REQUEST = Sent(
    service="default/a", port=8080, via="address", authority="a.default:8080", method="GET", target="/a", headers=()
)


def test_a_plan_names_each_request_that_is_treated_differently():
    seen = Counter()

    @RUN
    @given(families(ANY_WORLD), st.lists(requests().filter(lambda sent: sent.via != "proxy"), min_size=10, max_size=25))
    def each(family, sent):
        for meshes in permutations([mesh_of(world) for world in family], 2):
            seen.update(_compare_requests(meshes, sent))

    each()
    assert seen["requests"]
    # A plan has no example of classes that only text outside ASCII fits (docs/tasks/plan.md), which worlds have expressions for.
    assert seen["undecided"] * 10 < seen["classes"], seen
    _report("requests", seen)


def test_a_plan_for_clients_with_routes_of_their_own_has_examples_of_these_clients():
    """Other clients take the routes of the Service (GAMMA consumer routes)."""
    rule = {"matches": [{"path": {"type": "Exact", "value": "/a"}}], "backendRefs": [backend_ref("a")]}
    called = service_parent("a", namespace="default")
    own = route("own", rule, parents=[called], namespace="blue")
    after = mesh_of({key_of(written): written for written in (service("a", port(8080)), own)})
    assert _compare_requests((mesh_of({}), after), [A_REQUEST])["requests"] == 2, "of `blue`, and of other namespaces"


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


def _compare_requests(meshes, requests_sent):
    """Compare the request classes between two meshes with the model; return the numbers of comparisons."""
    seen = Counter()
    classes = list(request_classes(*meshes))
    for sent in filter(is_usual, requests_sent):
        for consumer in consumers_of(sent, meshes):
            visible = [mesh.seen_from(consumer) for mesh in meshes]
            both = treatments(visible, sent)
            if both and both[0] != both[1]:
                assert any(includes(each, sent, visible, consumer) for each in classes), (sent, consumer)
                seen.update(requests=1)
    for each in classes:
        if each.example:
            assert each.before != each.after
            assert example_routes(each, meshes) == (each.old_route, each.new_route), each
    seen.update(pairs=1, classes=len(classes), undecided=sum(each.example is None for each in classes))
    return seen


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
