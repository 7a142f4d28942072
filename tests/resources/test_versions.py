"""Objects convert between all versions of their kind without loss (R9, R10, D2, D24)."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.make.objects import split

from headgate.errors import DecodeError
from headgate.quantity import parse_quantity
from headgate.resources.smi.conversion import MATCHES, WEIGHTS
from headgate.resources.versions import from_hub, to_hub

GROUP = "split.smi-spec.io"
VERSIONS = [(GROUP, "v1alpha1"), (GROUP, "v1alpha2"), (GROUP, "v1alpha3"), (GROUP, "v1alpha4"), ("", "v1beta1")]
QUANTITIES = [(GROUP, "v1alpha1"), ("", "v1beta1")]
MATCHLESS = [(GROUP, "v1alpha1"), (GROUP, "v1alpha2"), ("", "v1beta1")]
FIREFOX = [{"kind": "HTTPRouteGroup", "name": "firefox"}]


def split_of(weights, version="v1alpha4", *, group=GROUP, matches=None, **metadata):
    whole = split("web", weights, version=f"{group}/{version}" if group else version, metadata=metadata)
    if matches is not None:
        whole["spec"]["matches"] = matches
    return whole


def weights(obj):
    return {backend["service"]: backend["weight"] for backend in obj["spec"]["backends"]}


@pytest.mark.parametrize(("group", "version"), QUANTITIES)
@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ({"one": "10m", "two": "100m", "three": "1500m"}, {"one": 1, "two": 10, "three": 150}),  # R9
        ({"v1": 1, "v2": "0m"}, {"v1": 1, "v2": 0}),  # R10
        ({"v1": 1, "v2": "500m"}, {"v1": 2, "v2": 1}),  # R10, D2: v2 gets a third, although R10 says half
        ({"v1": "1", "v2": 1.5}, {"v1": 2, "v2": 3}),
        ({"v1": 90, "v2": 10}, {"v1": 90, "v2": 10}),
        ({"v1": "1000m", "v2": "9"}, {"v1": 1, "v2": 9}),
        ({"v1": 0, "v2": "0m"}, {"v1": 0, "v2": 0}),
        ({"v1": 0.1, "v2": 0.2}, {"v1": 1, "v2": 2}),
    ],
)
def test_quantities_become_integer_weights_in_the_same_ratio(group, version, written, whole):
    hub = to_hub(split_of(written, version, group=group))
    assert hub["apiVersion"] == f"{GROUP}/v1alpha4"
    assert weights(hub) == whole


@pytest.mark.parametrize(("group", "version"), QUANTITIES)
def test_quantities_convert_back_to_their_written_form(group, version):
    written = split_of({"one": "10m", "two": 1, "three": 1.5}, version, group=group)
    hub = to_hub(written)
    assert WEIGHTS in hub["metadata"]["annotations"]
    assert from_hub(hub, group, version) == written


def test_integer_weights_need_no_annotation():
    assert to_hub(split_of({"v1": 90, "v2": 10}, "v1alpha1")) == split_of({"v1": 90, "v2": 10})


def test_a_client_of_an_old_version_can_change_one_weight():
    hub = to_hub(split_of({"v1": 1, "v2": "500m"}, "v1alpha1"))
    view = from_hub(hub, GROUP, "v1alpha1")
    view["spec"]["backends"][1]["weight"] = "250m"
    assert weights(to_hub(view)) == {"v1": 4, "v2": 1}


def test_changing_an_integer_weight_discards_the_stored_quantities():
    hub = to_hub(split_of({"v1": 1, "v2": "500m"}, "v1alpha1"))
    view = from_hub(hub, GROUP, "v1alpha4")
    view["spec"]["backends"][1]["weight"] = 8
    changed = to_hub(view)
    assert WEIGHTS not in changed["metadata"].get("annotations", {})
    assert weights(from_hub(changed, GROUP, "v1alpha1")) == {"v1": 2, "v2": 8}


def test_a_stale_weights_annotation_is_ignored():
    hub = to_hub(split_of({"v1": 1, "v2": "500m"}, "v1alpha1"))
    hub["spec"]["backends"][1]["weight"] = 8
    assert weights(from_hub(hub, GROUP, "v1alpha1")) == {"v1": 2, "v2": 8}


@pytest.mark.parametrize(("group", "version"), MATCHLESS)
def test_matches_survive_conversion_to_a_version_without_matches(group, version):
    hub = to_hub(split_of({"v1": 0, "v2": 1}, matches=FIREFOX))
    view = from_hub(hub, group, version)
    assert "matches" not in view["spec"]
    view["spec"]["backends"][0]["weight"] = 3
    assert to_hub(view) == to_hub(split_of({"v1": 3, "v2": 1}, matches=FIREFOX))


def test_removing_the_matches_annotation_removes_the_matches():
    view = from_hub(to_hub(split_of({"v1": 1}, matches=FIREFOX)), GROUP, "v1alpha2")
    del view["metadata"]["annotations"][MATCHES]
    assert "matches" not in to_hub(view)["spec"]


def test_the_matches_annotation_is_ignored_in_versions_with_the_field_matches():
    hub = to_hub(split_of({"v1": 1}, annotations={MATCHES: '[{"kind":"HTTPRouteGroup","name":"x"}]'}))
    assert hub == split_of({"v1": 1})


QUANTITY_TEXT = st.one_of(
    st.integers(0, 10**6),
    st.integers(0, 10**6).map(str),
    st.integers(0, 10**6).map("{}m".format),
    st.decimals(0, 1000, places=3).map(str),
    st.floats(0, 1000, allow_nan=False).map(lambda value: round(value, 4)),
    st.sampled_from(["1Ki", "2k", "1e2", ".5", "5u"]),
)
NAMES = st.text("abcxyz", min_size=1, max_size=4)
WRITTEN = st.dictionaries(NAMES, QUANTITY_TEXT, min_size=1, max_size=6)
WHOLE = st.dictionaries(NAMES, st.integers(0, 10**9), min_size=1, max_size=6)
LABELS = st.dictionaries(NAMES, NAMES, max_size=2)


@st.composite
def splits(draw):
    group, version = draw(st.sampled_from(VERSIONS))
    metadata = {"annotations": draw(LABELS)} if draw(st.booleans()) else {}
    metadata = {name: value for name, value in metadata.items() if value}
    matches = draw(st.sampled_from([None, [], FIREFOX])) if (group, version) not in MATCHLESS else None
    amounts = draw(WRITTEN if (group, version) in QUANTITIES else WHOLE)
    return split_of(amounts, version, group=group, matches=matches, **metadata)


@settings(deadline=None)
@given(splits(), st.sampled_from(VERSIONS))
def test_reading_any_version_and_writing_it_back_changes_nothing(written, through):
    hub = to_hub(written)
    assert to_hub(hub) == hub
    assert to_hub(from_hub(hub, *through)) == hub


@settings(deadline=None)
@given(splits())
def test_an_object_converts_back_to_its_own_version_unchanged(written):
    group, _, version = written["apiVersion"].rpartition("/")
    assert from_hub(to_hub(written), group, version) == written


@settings(deadline=None)
@given(WRITTEN)
def test_ratios_of_weights_are_exact(written):
    hub = weights(to_hub(split_of(written, "v1alpha1")))
    exact = {name: parse_quantity(str(text)) for name, text in written.items()}
    total, whole_total = sum(exact.values()), sum(hub.values())
    assert bool(total) == bool(whole_total)
    for name, value in exact.items():
        assert not total or Fraction(hub[name], whole_total) == value / total


@settings(deadline=None)
@given(splits(), WRITTEN, st.sampled_from(QUANTITIES))
def test_weights_written_as_quantities_take_effect(written, new, through):
    view = from_hub(to_hub(written), *through)
    view = {**view, "spec": {**view["spec"], "backends": split_of(new)["spec"]["backends"]}}
    assert weights(to_hub(view)) == weights(to_hub(split_of(new, "v1alpha1")))


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        ([], ""),
        ({"kind": "TrafficSplit"}, "apiVersion"),
        ({"apiVersion": "v1", "kind": 5}, "kind"),
        ({"apiVersion": "v1", "kind": "Toaster"}, "kind"),
        (split_of({"a": 1}, "v1alpha9"), "apiVersion"),
        (split_of({"a": 1}) | {"spec": None}, "spec"),
        (split_of({"a": 1}) | {"metadata": []}, "metadata"),
        (split_of({"a": 1}, annotations="x"), "metadata.annotations"),
        (split_of({"a": 1}, "v1alpha1") | {"spec": {"backends": "x"}}, "spec.backends"),
        (split_of({"a": 1}, "v1alpha1") | {"spec": {"backends": [7]}}, "spec.backends[0]"),
        (split_of({"a": "1", "b": "heavy"}, "v1alpha1"), "spec.backends[1].weight"),
        (split_of({"a": "-1"}, "v1alpha1"), "spec.backends[0].weight"),
        (split_of({"a": True}, "v1alpha1"), "spec.backends[0].weight"),
        (split_of({"a": None}, "v1alpha1"), "spec.backends[0].weight"),
        (split_of({"a": float("nan")}, "v1alpha1"), "spec.backends[0].weight"),
        (split_of({"a": "1n", "b": "1E"}, "v1alpha1"), "spec.backends"),
        (split_of({"a": 1}, "v1alpha2", matches=FIREFOX), "spec.matches"),
        (split_of({"a": 1}, "v1alpha1", annotations={MATCHES: "{"}), f"metadata.annotations.{MATCHES}"),
    ],
)
def test_a_conversion_error_names_the_field(obj, field):
    with pytest.raises(DecodeError) as caught:
        to_hub(obj)
    assert caught.value.causes[0].field == field


def test_the_error_for_an_unknown_version_lists_the_known_versions():
    with pytest.raises(DecodeError, match=r"known versions are split\.smi-spec\.io/v1alpha4, .*, v1beta1"):
        to_hub(split_of({"a": 1}, "v1alpha9"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.sampled_from(VERSIONS), JSON, JSON, st.sampled_from(["TrafficSplit", "EndpointSlice"]))
def test_conversion_of_any_malformed_object_raises_a_decode_error(version, content, metadata, kind):
    group, version = version if kind == "TrafficSplit" else ("discovery.k8s.io", "v1beta1")
    obj = {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, "metadata": metadata}
    for field in ("spec", "endpoints"):
        obj = {**obj, field: content}
    try:
        to_hub(obj)
    except DecodeError as error:
        assert error.causes  # noqa: PT017 - either outcome is right; a crash is not


def test_endpoint_slices_of_v1beta1_convert_their_topology():
    old = {
        "apiVersion": "discovery.k8s.io/v1beta1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1"},
        "endpoints": [
            {
                "addresses": ["127.0.0.1"],
                "hostname": "h",
                "nodeName": "n1",
                "topology": {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n1", "rack": "r"},
            }
        ],
    }
    hub = to_hub(old)
    assert hub["apiVersion"] == "discovery.k8s.io/v1"
    assert hub["endpoints"] == [
        {
            "addresses": ["127.0.0.1"],
            "hostname": "h",
            "nodeName": "n1",
            "zone": "z",
            "deprecatedTopology": {"rack": "r"},
        }
    ]
    assert from_hub(hub, "discovery.k8s.io", "v1beta1") == old


def test_reference_grants_are_the_same_in_both_versions():
    grant = {
        "apiVersion": "gateway.networking.k8s.io/v1beta1",
        "kind": "ReferenceGrant",
        "metadata": {"name": "g"},
        "spec": {"from": [], "to": []},
    }
    hub = to_hub(grant)
    assert hub == {**grant, "apiVersion": "gateway.networking.k8s.io/v1"}
    assert from_hub(hub, "gateway.networking.k8s.io", "v1beta1") == grant
