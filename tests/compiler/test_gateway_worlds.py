"""What holds for whatever users write about Gateways and routes."""

from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.gateway_worlds import gateway_worlds
from tests.properties.test_compile import UNRELATED, compiled, rendered

from headgate.envoy.config import CLUSTER, ROUTES
from headgate.model.check import check


@given(gateway_worlds(), st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(world, random):
    items = list(world.items())
    random.shuffle(items)
    one, two = compiled(world), compiled(dict(items))
    assert one == two
    assert rendered(one.mesh) == rendered(two.mesh)


@given(gateway_worlds())
def test_every_mesh_is_sound_and_names_only_clusters_that_are_there(world):
    result = compiled(world)
    assert check(result.mesh) == ()
    assert set(result.report.seen) >= {finding.about for finding in result.report.findings}
    assert all(finding.message and finding.field for finding in result.report.findings)
    config = rendered(result.mesh)
    for routes in config[ROUTES].values():
        assert routes.needs <= config[CLUSTER].keys()


@given(gateway_worlds())
def test_each_parent_has_one_status_with_both_conditions(world):
    statuses = compiled(world).report.parents
    places = [(status.about, status.index) for status in statuses]
    assert places == sorted(set(places))
    for status in statuses:
        accepted, resolved = status.verdicts[:2]
        assert (accepted.type, resolved.type) == ("Accepted", "ResolvedRefs")
        assert accepted.status or not (status.ports or status.gateway_ports)


@given(gateway_worlds())
def test_unrelated_objects_change_no_digest(world):
    before, after = rendered(compiled(world).mesh), rendered(compiled(world | UNRELATED).mesh)
    for type_url, resources in before.items():
        assert resources.items() <= after[type_url].items()
