"""Properties of all Gateways and routes, over random worlds."""

from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.gateway_api.gateway_worlds import gateway_worlds
from tests.properties.builds import built, mesh_is_valid, order_does_not_matter, unrelated_objects_change_no_digest

from headgate.envoy.config import CLUSTER, ROUTES


@given(gateway_worlds(), st.randoms(use_true_random=False))
def test_the_properties_of_gateways_and_routes_in_every_world(world, random):
    """All properties share one world, because drawing it takes as long as compiling it."""
    one = built(world)
    mesh_is_valid(one.result)
    order_does_not_matter(one, random)
    unrelated_objects_change_no_digest(one)
    every_route_refers_to_existing_clusters(one.config)
    each_parent_has_a_status_with_both_conditions(one.result.report.parents)


def every_route_refers_to_existing_clusters(config):
    for routes in config[ROUTES].values():
        assert routes.needs <= config[CLUSTER].keys()


def each_parent_has_a_status_with_both_conditions(statuses):
    places = [(status.about, status.index) for status in statuses]
    assert places == sorted(set(places))
    for status in statuses:
        accepted, resolved = status.conditions[:2]
        assert (accepted.type, resolved.type) == ("Accepted", "ResolvedRefs")
        assert accepted.status or not (status.ports or status.gateway_ports)
