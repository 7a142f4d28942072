"""Properties of compiler and rendering over random worlds."""

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.gateway_api.gateway_worlds import gateway_worlds
from tests.properties.builds import (
    WORLDS,
    built,
    compiled,
    decoded,
    mesh_is_valid,
    order_does_not_matter,
    rendered,
    unrelated_objects_change_no_digest,
)
from tests.properties.worlds import meshes, worlds

from headgate.compiler.compile import Compiler, compile_mesh
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.envoy import names, pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, ROUTES, SCOPES
from headgate.envoy.encode import Memo
from headgate.model.hash_slots import TOTAL
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

NO_ENDPOINTS = Reason.NO_READY_ENDPOINTS
KEPT = 0.7  # fraction of objects that the next snapshot keeps
SLOT = Fraction(1, TOTAL)
LARGEST_SUM = 2**32 - 1  # Envoy sums weights as 32-bit integers


def configured_shares(config, ref):
    """Return the share of each backend in Envoy's configuration; broken shares have their own cluster name."""
    _connect, plain, *_ = decoded(config, ROUTES)[names.outbound(ref)].virtual_hosts[0].routes
    action = plain.route
    clusters = Counter({action.cluster: 1} if action.cluster else {})
    for item in action.weighted_clusters.clusters:  # a sticky split has several entries for a cluster
        clusters[item.name] += item.weight.value
    assert sum(clusters.values()) <= LARGEST_SUM
    found = decoded(config, CLUSTER)
    assignments = {name: item.load_assignment for name, item in found.items()} | decoded(config, ENDPOINTS)
    shares = Counter()
    for cluster, weight in clusters.items():
        share = Fraction(weight, sum(clusters.values()))
        localities = assignments[cluster].endpoints
        total = sum(locality.load_balancing_weight.value for locality in localities)
        assert total <= LARGEST_SUM
        for item in localities:
            backend = f"{item.locality.region}/{item.locality.zone}"
            shares[backend] += share * Fraction(item.load_balancing_weight.value, total)
        if not localities:
            shares[cluster] += share
    return shares


def weights_are_conserved(one):
    """D9, D24. Usable backends share all traffic by weight; weight 0 gets nothing."""
    result = one.result
    for outcome in result.report.outcomes:
        live = {item.service: item.weight for item in outcome.shares if item.weight and not item.left_out}
        got = {item.service: item.share for item in outcome.shares if item.share}
        assert sum(got.values()) + outcome.root + outcome.failed == 1
        (table,) = (table for table in result.mesh.tables if table.ref == outcome.ref)
        split = table.routes[0].split
        broken = sum(item.weight for item in split.broken)
        total = broken + sum(item.weight for item in split.targets)
        if live:
            assert sum(got.values()) + Fraction(broken, total) == 1
        if split.sticky:  # hash slots round the shares of a sticky split
            failed = (item.weight for item in outcome.shares if split.broken and item.left_out is NO_ENDPOINTS)
            whole = sum(live.values()) + sum(failed)
            assert got.keys() <= live.keys()
            assert all(abs(got.get(name, 0) - Fraction(weight, whole)) < SLOT for name, weight in live.items())
        else:
            assert got.keys() == live.keys()
            assert len({got[service] / weight for service, weight in live.items()}) <= 1


def envoy_gets_exactly_these_shares(one):
    _, result, config = one
    with_requests = {table.ref for table in result.mesh.tables if table.protocol.is_http}
    for outcome in (item for item in result.report.outcomes if item.ref in with_requests):
        configured = configured_shares(config, outcome.ref)
        shares = {item.service: item.share for item in outcome.shares if item.share}
        assert sum(configured.values()) == 1
        fails = {names.outbound(outcome.ref), names.no_endpoints(outcome.ref)}
        to_backends = {name: share for name, share in configured.items() if name not in fails}
        if outcome.root:  # a root without endpoints fails too
            assert to_backends in ({}, {outcome.ref.service: 1})
        else:
            assert to_backends == shares
            assert sum(configured[name] for name in fails) == outcome.failed


def routes_refer_to_existing_clusters_with_endpoints(one):
    config = one.config
    discovered = {name for name, item in decoded(config, CLUSTER).items() if item.type == pb.Cluster.DiscoveryType.EDS}
    assert config[ENDPOINTS].keys() == discovered
    for routes in config[ROUTES].values():
        assert routes.needs <= config[CLUSTER].keys()
    for scope in decoded(config, SCOPES).values():
        assert scope.route_configuration_name in config[ROUTES]


def addresses_and_authorities_are_unique(one):
    mesh = one.result.mesh
    spelled = [item for front in mesh.frontends for item in names.authorities(front, mesh.domain)]
    authorities = Counter(authority for authority, _ in spelled)
    assert all(count == 1 for count in authorities.values()), authorities
    taken = Counter((front.address, port) for front in mesh.frontends if front.address for port in front.ports)
    assert all(count == 1 for count in taken.values()), taken


def every_resource_name_can_be_parsed(one):
    refs = {table.ref for table in one.result.mesh.tables}
    for resources in one.config.values():
        for name in resources:
            assert (names.parse(name) in refs) != (name in {names.PROXY, names.SCOPES, names.TRY, names.TUNNEL})


def a_second_build_encodes_nothing(one):
    memo = Memo()
    rendered(one.result.mesh, memo)
    before = memo.encoded
    memo.begin_build()
    rendered(compiled(one.world).mesh, memo)
    assert memo.encoded == before


@WORLDS
@given(worlds(), st.randoms(use_true_random=False))
def test_the_properties_of_every_world(world, random):
    """All properties share one world, because drawing it takes as long as compiling it."""
    one = built(world)
    order_does_not_matter(one, random)
    mesh_is_valid(one.result)
    for holds in (
        weights_are_conserved,
        envoy_gets_exactly_these_shares,
        routes_refer_to_existing_clusters_with_endpoints,
        addresses_and_authorities_are_unique,
        every_resource_name_can_be_parsed,
        a_second_build_encodes_nothing,
        unrelated_objects_change_no_digest,
    ):
        holds(one)


@WORLDS
@given(st.lists(worlds() | gateway_worlds() | meshes(), max_size=4), st.randoms(use_true_random=False))
def test_the_result_does_not_depend_on_earlier_snapshots(history, random):
    earlier_snapshots_do_not_matter(history, random)


@WORLDS
@given(st.lists(gateway_worlds(), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_routes_do_not_depend_on_earlier_routes(history, random):
    earlier_snapshots_do_not_matter(history, random)


def earlier_snapshots_do_not_matter(history, random):
    """Earlier snapshots change neither the report nor the configuration of the gateway.

    Consecutive snapshots share the Python objects of unchanged Kubernetes objects, as in the feed.
    """
    compiler, before, memo = Compiler(), Snapshot(), Memo()
    world = {}
    for more in history:
        kept = {key: obj for key, obj in world.items() if random.random() < KEPT}
        world = kept | {key: obj for key, obj in more.items() if random.random() < KEPT}
        fresh = snapshot_of(world)
        objects = {key: before.objects.get(key) for key in fresh.objects}
        shared = {key: objects[key] if objects[key] == item else item for key, item in fresh.objects.items()}
        before = Snapshot(0, shared, fresh.mistakes, fail_closed=fresh.fail_closed)
        wanted = compile_mesh(fresh, Settings())
        assert compiler.fork().compile(before, Settings()) == wanted
        found = compiler.compile(before, Settings())
        assert found == wanted
        memo.begin_build()
        assert rendered(found.mesh, memo) == rendered(wanted.mesh)
