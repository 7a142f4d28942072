"""Properties of all Gateways and routes, over random worlds."""

from hypothesis import given
from tests.compiler.gateway_api.gateway_worlds import gateway_worlds
from tests.properties.test_compile import UNRELATED, compiled, rendered

from headgate.envoy.config import CLUSTER, ROUTES


@given(gateway_worlds())
def test_every_route_refers_to_existing_clusters(world):
    config = rendered(compiled(world).mesh)
    for routes in config[ROUTES].values():
        assert routes.needs <= config[CLUSTER].keys()


@given(gateway_worlds())
def test_each_parent_has_a_status_with_both_conditions(world):
    statuses = compiled(world).report.parents
    places = [(status.about, status.index) for status in statuses]
    assert places == sorted(set(places))
    for status in statuses:
        accepted, resolved = status.conditions[:2]
        assert (accepted.type, resolved.type) == ("Accepted", "ResolvedRefs")
        assert accepted.status or not (status.ports or status.gateway_ports)


@given(gateway_worlds())
def test_unrelated_objects_change_no_digest(world):
    before, after = rendered(compiled(world).mesh), rendered(compiled(world | UNRELATED).mesh)
    for type_url, resources in before.items():
        assert resources.items() <= after[type_url].items()
