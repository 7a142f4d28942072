"""The shares of a root's traffic (R7, R8, R22, R28, R34 to R43, D8 to D10)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.split_meshes import ROOT, root_split, root_table, split_world, targets
from tests.golden.cases import CASES
from tests.golden.cases import compiled as golden
from tests.make.objects import backed_service, endpoint_slice, headgate_keys, split
from tests.make.values import compiled

from headgate.compiler.reasons import Reason
from headgate.model.evaluate import shares
from headgate.model.routing import Broken, PortRef, Target
from headgate.resources.decode import validate


def reasons(result):
    return [finding.reason for finding in result.report.findings]


@given(
    weights=st.lists(st.integers(0, 2**26), min_size=1, max_size=8),
    dead=st.sets(st.integers(0, 7)),
    fail=st.booleans(),
)
def test_usable_backends_share_all_traffic_by_weight(weights, dead, fail):
    named = {f"v{index}": weight for index, weight in enumerate(weights)}
    gone = {f"v{index}" for index in dead}
    result = compiled(*split_world(named, dead=gone, no_endpoints="fail" if fail else "skip"))
    live = {name: weight for name, weight in named.items() if weight and name not in gone}
    lost = sum(weight for name, weight in named.items() if fail and name in gone)
    (outcome,) = result.report.outcomes
    total = sum(live.values()) + lost
    assert {item.service: item.share for item in outcome.shares} == {
        f"default/{name}": Fraction(live.get(name, 0), total or 1) for name in named
    }
    assert (outcome.root, outcome.failed) == (0, Fraction(lost, total) if total else 1)
    shares = root_split(result)
    reported = sum(item.weight for item in (*shares.targets, *shares.broken))
    assert {name: Fraction(weight, reported) for name, weight in targets(result).items()} == {
        name: Fraction(weight, total) for name, weight in live.items()
    }
    assert sum(Fraction(item.weight, reported) for item in shares.broken) == (Fraction(lost, total) if lost else 0)


@pytest.mark.parametrize("case", CASES)
def test_a_status_has_the_shares_of_the_explanation(case):
    """R42. Both read the split of the mesh; a request of a share without endpoints gets 503 there, too."""
    result = golden(case)
    tables = {table.ref: table for table in result.mesh.tables}
    for outcome in result.report.outcomes:
        explained = [shares(route, {}) for route in tables[outcome.ref].routes if route.origin == outcome.about]
        reported = {item.service: item.share for item in outcome.shares}
        if outcome.root:
            reported[outcome.ref.service] = outcome.root
        for portions in explained:
            assert {portion.ref.service: portion.share for portion in portions if portion.ref} == {
                name: share for name, share in reported.items() if share
            }
            assert sum(portion.share for portion in portions if not portion.ref) == outcome.failed


def test_a_root_that_is_its_own_backend_has_the_share_of_a_backend():
    """D1. It is not the share that a root gets without usable backends."""
    metadata = headgate_keys(allow_self_reference="true")
    world = [*split_world({"other": 1})[:1], *backed_service("other", ("", "10.1.0.1"), number=80)]
    world += [
        endpoint_slice("web", ["10.1.0.2"], {"p80": 80}),
        split("web", {"web": 3, "other": 1}, annotations=metadata),
    ]
    (outcome,) = compiled(*world).report.outcomes
    assert {item.service: item.share for item in outcome.shares} == {
        "default/web": Fraction(3, 4),
        "default/other": Fraction(1, 4),
    }
    assert (outcome.root, outcome.failed) == (0, 0)


def test_weights_with_equal_ratios_give_equal_configurations():
    assert root_split(compiled(*split_world({"a": 900, "b": 100}))) == root_split(
        compiled(*split_world({"a": 9, "b": 1}))
    )


def test_a_failing_share_has_a_reason():
    result = compiled(*split_world({"a": 9, "b": 1}, dead={"b"}, no_endpoints="fail"))
    assert root_split(result).broken == (Broken(weight=1, reason="NoReadyEndpoints"),)
    assert reasons(result) == [Reason.NO_READY_ENDPOINTS]


def test_a_backend_with_weight_0_needs_no_endpoints():
    result = compiled(*split_world({"a": 1, "b": 0}, dead={"b"}))
    assert targets(result) == {"a": 1}
    assert reasons(result) == []


def test_a_split_without_usable_weighted_backends_has_no_targets():
    result = compiled(*split_world({"a": 0, "b": 1}, ports={"b": (81,)}))
    assert targets(result) == {}
    assert reasons(result) == [Reason.PORT_MISMATCH, Reason.PORT_MISMATCH]


def test_a_root_of_another_cluster_has_its_own_message():
    name = "web.default.svc.example.com"
    (finding,) = compiled(split(name, {"a": 1}, name="web")).report.findings
    assert (finding.reason, finding.field) == (Reason.SERVICE_NOT_FOUND, "spec.service")
    assert finding.message == (
        f"{name} is not the name of a Service in this cluster; write NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc; "
        "the split does nothing until it exists"
    )


def test_a_missing_backend_is_named_if_the_remaining_weights_are_0():
    """D9, D10. The message does not claim that all weights are 0."""
    result = compiled(*split_world({"a": 0}), split("web", {"a": 0, "missing": 100}))
    assert targets(result) == {}
    first, second = result.report.findings
    assert (first.reason, first.field) == (Reason.BACKEND_NOT_FOUND, "spec.backends[1].service")
    assert (second.reason, second.field) == (first.reason, first.field)
    assert first.message == "Service default/missing not found; it gets no traffic until it exists"
    assert second.message == (
        "no usable backend with a weight above 0 is left for default/web:80 (default/missing can't be used), so its requests are answered with 503"
    )


@pytest.mark.parametrize("ports", [{}, {"b": (81,)}, {"a": (81,), "b": (82,)}])
def test_no_backend_gets_traffic_if_all_weights_are_0(ports):
    """D10."""
    result = compiled(*split_world({"a": 0, "b": 0}, ports=ports))
    assert targets(result) == {}
    assert reasons(result)[0] is Reason.ALL_WEIGHTS_ZERO


def test_the_root_serves_a_port_that_no_backend_has():
    result = compiled(*split_world({"a": 1, "b": 0}, ports={"a": (81,), "b": (82,)}))
    assert root_split(result).targets == (Target(ref=ROOT, weight=1),)
    assert reasons(result) == [Reason.PORT_MISMATCH, Reason.PORT_MISMATCH]


def test_a_port_mismatch_is_reported_once_for_each_port():
    (finding,) = compiled(*split_world({"a": 1, "b": 1}, root=(80, 90), ports={"a": (80, 90)})).report.findings
    assert finding.message.startswith(
        "traffic will not be split for b on port 90: Service default/b has only port 80; "
    )
    assert finding.field == "spec.backends[1].service"


def test_a_split_of_another_namespace_does_not_affect_the_root():
    result = compiled(*split_world({"a": 1, "b": 1}), split("web", {"a": 1, "b": 1}, namespace="blue"))
    assert targets(result) == {"a": 1, "b": 1}
    assert reasons(result) == [Reason.SERVICE_NOT_FOUND]


@pytest.mark.parametrize(
    ("weights", "more", "share"),
    [
        ({"v1": 1, "v2": 0}, {}, Fraction(1, 5)),
        ({"v1": 9, "v2": 1}, {}, Fraction(1, 5)),
        ({"v1": 1, "v2": 0}, {"dead": ("v2",)}, Fraction(1, 5)),
        ({"v1": 1, "v2": 0}, {"ports": {"v2": (81,)}}, None),
    ],
)
def test_a_backend_gets_copies_by_the_annotation_if_it_has_the_port(weights, more, share):
    """R108: the first step of a rollout."""
    result = compiled(*split_world(weights, mirror="v2=20%", **more))
    (route,) = root_table(result).routes
    found = [(item.ref, Fraction(item.numerator, item.denominator), item.targets) for item in route.mirrors]
    ref = PortRef("default/v2", 80)
    assert found == ([(ref, share, (Target(ref=ref, weight=1),))] if share else [])


@pytest.mark.parametrize("text", ["", "v2", "v2=", "v2=20", "v2=0%", "v2=101%", "v3=20%"])
def test_an_invalid_annotation_for_copies_is_rejected_with_its_field(text):
    (cause,) = validate(split("web", {"v2": 1}, annotations=headgate_keys(mirror=text)))
    assert cause.field == "metadata.annotations.headgate.dev/mirror"
