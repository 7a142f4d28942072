"""The cost of a change, in resources and bytes, is equal for ten Services and for hundreds (docs/explain/performance.md)."""

import pytest
from benchmarks.build import Pipeline, edge, edge_route, services, weighted
from benchmarks.pods import mesh
from benchmarks.sidecar_changes import Sidecars

from headgate.compiler.compile import compile_mesh
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project, sidecar
from headgate.model.identities import Credential, PrivateText
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings

OWN = 5  # a sidecar's certificate, its HTTP proxy, and a listener, a cluster and routes for its pod's port
ADDRESS = 4  # routes, a cluster, endpoints and a scope for its pod's address, shared by all proxies
CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")


@pytest.mark.parametrize("count", [10, 300])
def test_a_weight_change_encodes_and_sends_one_resource(count):
    pipeline = Pipeline(services(count))
    first = pipeline.build(weighted(0, 90))
    assert first.encoded == first.resources > count
    for weight in (80, 70):
        change = pipeline.build(weighted(0, weight))
        assert (change.encoded, change.resources) == (1, 1)
        assert change.sent < 1000
    same = pipeline.build(weighted(0, 70))
    assert (same.encoded, same.resources, same.sent) == (0, 0, 0)


@pytest.mark.parametrize("capture", ["explicit", "transparent"])
@pytest.mark.parametrize(("services", "sidecars"), [(10, 3), (100, 10)])
def test_a_weight_change_is_encoded_once_and_sent_once_to_each_sidecar(services, sidecars, capture):
    pipeline = Sidecars(services, sidecars, capture)
    pipeline.build(weighted(0, 90))
    for weight in (80, 70):
        change = pipeline.build(weighted(0, weight))
        assert change.encoded == 1
        assert change.resources == (1,) * sidecars
        assert max(change.sent) < 1000
    assert set(pipeline.build(weighted(0, 70)).sent) == {0}


@pytest.mark.parametrize("services", [10, 100])
def test_a_further_sidecar_costs_only_its_own_resources(services):
    fewer, more = (Sidecars(services, sidecars).build(weighted(0, 90)).encoded for sidecars in (2, 9))
    assert more - fewer == (9 - 2) * (OWN + ADDRESS)


@pytest.mark.parametrize("capture", ["explicit", "transparent"])
def test_a_change_of_endpoints_reuses_the_objects_of_other_types(capture):
    """Sessions can then compare these objects by identity, whatever the number of sidecars."""
    memo = Memo()

    def build(weight):
        found = {key_of(item): item for item in (*mesh(20, 3, capture), weighted(0, weight))}
        compiled = compile_mesh(snapshot_of(found), Settings()).mesh
        memo.begin_build()
        return [encode(project(compiled, sidecar(item), CREDENTIAL), memo) for item in compiled.workloads]

    for before, after in zip(build(90), build(80), strict=True):
        assert after[ENDPOINTS] is not before[ENDPOINTS]
        for type_url in (CLUSTER, SECRET, LISTENER, ROUTES, SCOPES):
            assert after[type_url] is before[type_url]


def test_a_sidecar_has_only_the_services_that_it_may_call():
    """D21, with `access: deny`: the number of other Services does not matter."""
    closed = Settings(access="deny", outbound="refuse")

    def held(services):
        found = {key_of(item): item for item in mesh(services, services)}
        compiled = compile_mesh(snapshot_of(found), closed).mesh
        config = encode(project(compiled, sidecar(compiled.workloads[0]), CREDENTIAL), Memo())
        return {type_url: len(resources) for type_url, resources in config.items()}

    assert held(30) == held(10)


@pytest.mark.parametrize("routes", [10, 300])
def test_a_new_route_encodes_and_sends_its_own_resources(routes):
    pipeline = Pipeline(edge(routes))
    pipeline.build(edge_route(0))
    more = pipeline.build(edge_route(routes))
    assert (more.encoded, more.resources) == (3, 3)  # a scope for its host, a cluster and its endpoints
