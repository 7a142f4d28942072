"""Sticky splits by the annotation `headgate.dev/sticky` (requirements 2.8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.split_meshes import ROOT, root_split, split_world, targets
from tests.make.values import compiled

from headgate.compiler.reasons import Reason
from headgate.model.routing import PortRef, SlotRange, Sticky
from headgate.resources.decode import validate

V1, V2, V3 = (PortRef(f"default/{name}", 80) for name in ("v1", "v2", "v3"))


def sides(weights, **more):
    sticky = root_split(compiled(*split_world(weights, sticky="source", **more))).sticky
    assert sticky is not None
    return [(side.ref, side.slots) for side in sticky.slot_ranges]


@pytest.mark.parametrize(
    ("text", "sticky"),
    [
        ("cookie:user", Sticky(kind="cookie", name="user")),
        ("header:X-User", Sticky(kind="header", name="x-user")),
        ("source", Sticky(kind="source")),
    ],
)
def test_a_cookie_a_header_or_the_source_identifies_a_user(text, sticky):
    found = root_split(compiled(*split_world({"v1": 1, "v2": 0}, sticky=text))).sticky
    assert found == Sticky(kind=sticky.kind, name=sticky.name, slot_ranges=(SlotRange(slots=10_000, ref=V1),))


@pytest.mark.parametrize("text", ["", "cookie", "cookie:", "cookie:a b", "user", "source:x", "header:a:b"])
def test_an_invalid_annotation_is_rejected_with_its_field(text):
    split = {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"name": "web", "annotations": {"headgate.dev/sticky": text}},
        "spec": {"service": "web", "backends": [{"service": "v1", "weight": 1}]},
    }
    (cause,) = validate(split)
    assert cause.field == "metadata.annotations.headgate.dev/sticky"
    assert "cookie:NAME" in cause.message


def test_a_split_without_the_annotation_is_not_sticky():
    assert root_split(compiled(*split_world({"v1": 90, "v2": 10}))).sticky is None


def test_a_backend_without_endpoints_changes_the_slots_like_a_backend_with_weight_0():
    assert sides({"v1": 2, "v2": 1, "v3": 1}) == [(V2, 2500), (V1, 5000), (V3, 2500)]
    assert sides({"v1": 2, "v2": 1, "v3": 1}, dead=("v2",)) == [(V1, 6667), (V3, 3333)]
    assert sides({"v1": 2, "v2": 0, "v3": 1}) == [(V1, 6667), (V3, 3333)]


def test_a_failing_share_keeps_its_users():
    """D9 `fail`. Only users of the backend without endpoints get 503."""
    found = sides({"v1": 2, "v2": 1, "v3": 1}, dead=("v2",), no_endpoints="fail")
    assert found == [(None, 2500), (V1, 5000), (V3, 2500)]


def test_rounded_shares_are_reported():
    result = compiled(*split_world({"v1": 1, "v2": 1, "v3": 1}, sticky="source"))
    (finding,) = result.report.findings
    assert finding.reason is Reason.WEIGHTS_ROUNDED
    assert "default/v1 3334, default/v2 3333" in finding.message
    assert targets(result) == {"v1": 3334, "v2": 3333, "v3": 3333}


@given(st.lists(st.integers(0, 2**20), min_size=2, max_size=5).filter(any), st.sets(st.integers(0, 4)), st.booleans())
def test_the_weight_of_a_target_is_its_number_of_slots(weights, dead, fail):
    names = [f"v{index}" for index in range(len(weights))]
    more = {"no_endpoints": "fail"} if fail else {}
    gone = [name for index, name in enumerate(names) if index in dead]
    split = root_split(
        compiled(*split_world(dict(zip(names, weights, strict=True)), dead=gone, sticky="source", **more))
    )
    if split.sticky is None:
        assert not split.targets
        return
    assert sum(side.slots for side in split.sticky.slot_ranges) == 10_000
    for target in split.targets:
        assert sum(side.slots for side in split.sticky.slot_ranges if side.ref == target.ref) == target.weight
    failing = sum(side.slots for side in split.sticky.slot_ranges if side.ref is None)
    assert failing == sum(share.weight for share in split.broken)
    assert ROOT not in {side.ref for side in split.sticky.slot_ranges}
