"""Which endpoints get the requests of a Service: the ready ones, and those that end while none is ready (D31)."""

import pytest
from tests.compiler.split_meshes import root_split, split_world, targets
from tests.make.objects import endpoint, endpoint_slice, meshed_pod, pod, port, service
from tests.make.values import compiled

from headgate.compiler.reasons import Reason
from headgate.model.routing import Broken

ENDING = {"ready": False, "serving": True, "terminating": True}


def addresses(*slices, **spec):
    """Return the addresses that get the requests of the Service `web` with these slices."""
    (entry,) = compiled(service("web", port(80, "main"), **spec), *slices).mesh.endpoints
    return [item.address for item in entry.ready]


def slice_of(*endpoints, name="web"):
    return endpoint_slice("web", endpoints, {"main": 8080}, name=name)


@pytest.mark.parametrize(
    "conditions",
    [ENDING, {"ready": False, "terminating": True}],
    ids=["serving", "without serving, which means serving"],
)
def test_endpoints_that_end_are_used_while_none_is_ready(conditions):
    """Report 28."""
    ending = endpoint("10.1.0.1", "a", conditions=conditions)
    assert addresses(slice_of(ending)) == ["10.1.0.1"]
    assert addresses(slice_of(ending, endpoint("10.1.0.2", "b"))) == ["10.1.0.2"]
    assert addresses(slice_of(ending), slice_of(endpoint("10.1.0.2", "b"), name="web-2")) == ["10.1.0.2"]


@pytest.mark.parametrize(
    "conditions",
    [{**ENDING, "serving": False}, {**ENDING, "terminating": False}, {"ready": False}],
    ids=["not serving", "not terminating", "not ready"],
)
def test_endpoints_that_do_not_serve_are_never_used(conditions):
    assert addresses(slice_of(endpoint("10.1.0.1", "a", conditions=conditions))) == []


def test_a_pod_with_addresses_of_both_families_counts_once():
    four, six = slice_of("10.1.0.1", name="web-4"), slice_of("fd00::1", name="web-6")
    assert addresses(four, six) == ["10.1.0.1"]
    assert addresses(four, six, ipFamilies=["IPv6", "IPv4"]) == ["fd00::1"]
    assert addresses(four, six, clusterIP="fd00::99") == ["fd00::1"]
    assert addresses(six) == ["fd00::1"]


@pytest.mark.parametrize("meshed", [True, False])
def test_an_endpoint_without_a_name_belongs_to_the_pod_with_its_address(meshed):
    """So its traffic counts for the pod. A pod in the network of its node has the address of several pods."""
    old = pod("old", "10.1.0.1", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    new = pod("new", "10.1.0.1", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
    if meshed:
        new = meshed_pod("new", "10.1.0.1", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
    node = pod("node", "10.1.0.2", hostNetwork=True)
    (entry,) = compiled(
        service("web", port(80, "main")), slice_of("10.1.0.1", "10.1.0.2", "10.1.0.3"), old, new, node
    ).mesh.endpoints
    assert [item.workload for item in entry.ready] == ["default/new", "", ""]


def split_with_ending(*ending, ready=(), no_endpoints="skip"):
    """Return a compiled split over `a` and `b`, whose endpoints in `ending` terminate, and those in `ready` are ready."""
    world = [
        item for item in split_world({"a": 9, "b": 1}, no_endpoints=no_endpoints) if item["kind"] != "EndpointSlice"
    ]
    slices = [
        endpoint_slice(name, [endpoint(f"10.1.0.{number}", **conditions)], {"p80": 8080})
        for number, (name, conditions) in enumerate(
            [*((name, {"conditions": ENDING}) for name in ending), *((name, {}) for name in ready)]
        )
    ]
    return compiled(*world, *slices)


def test_a_ready_backend_gets_the_share_of_a_terminating_backend():
    result = split_with_ending("a", ready=["b"])
    assert targets(result) == {"b": 1}
    assert [finding.reason for finding in result.report.findings] == [Reason.NO_READY_ENDPOINTS]


def test_backends_that_end_keep_their_shares_while_none_is_ready():
    assert targets(split_with_ending("a", "b")) == {"a": 9, "b": 1}
    assert targets(split_with_ending("b")) == {"b": 1}


def test_a_backend_that_ends_keeps_its_share_instead_of_a_503():
    result = split_with_ending("a", ready=["b"], no_endpoints="fail")
    assert targets(result) == {"a": 9, "b": 1}
    assert root_split(split_with_ending("a", no_endpoints="fail")).broken == (
        Broken(weight=1, reason=Reason.NO_READY_ENDPOINTS.value),
    )
