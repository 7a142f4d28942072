"""Which workloads a flow connects, and what the access rules of the called one say."""

from msgspec import structs
from tests.plane.access_meshes import AUDITED, BUYER, CLOSED, GRANT, THIEF, shop_mesh

from headgate.compiler.report import Compiled
from headgate.latest import Latest
from headgate.model.access import Access
from headgate.model.identities import gateway_id
from headgate.plane.access_calls import CallFinder, rules_digest
from headgate.telemetry.access_records import Call
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer


def call(access: Access, source: Peer, *, secured: bool = True) -> Call:
    finder = CallFinder(Latest(shop_mesh(access)))
    found = finder(Flow(source=source, destination=Peer(pod="shop/server"), target=90, secured=secured), True)
    assert found is not None
    return found


def test_a_caller_is_named_by_its_identity_or_else_by_its_pod_or_address():
    callers = {
        Peer(pod="shop/buyer"): BUYER,
        GATEWAY: gateway_id("cluster.local"),
        Peer(outside=THIEF): THIEF,
        Peer(pod="shop/without-sidecar"): "shop/without-sidecar",
        Peer(outside="192.0.2.1"): "192.0.2.1",
    }
    assert {peer: call(AUDITED, peer).key.caller for peer in callers} == callers


def test_connections_open_at_an_audited_workload_and_its_rules_refuse_those_without_a_grant():
    def answer(access: Access, name: str, *, secured: bool = True) -> tuple[bool, bool]:
        found = call(access, Peer(pod=f"shop/{name}"), secured=secured)
        return found.opens, found.rules_allow_connections

    assert answer(AUDITED, "buyer") == answer(CLOSED, "buyer") == (True, True)
    assert answer(AUDITED, "thief") == answer(AUDITED, "buyer", secured=False) == (True, False)
    assert answer(CLOSED, "thief") == answer(CLOSED, "buyer", secured=False) == (False, False)


def test_rules_for_connections_are_not_computed_for_flows_without_connections():
    """With many rules that takes a thousand times as long as finding a known flow."""
    finder = CallFinder(Latest(shop_mesh(CLOSED)))
    thief = Flow(source=Peer(pod="shop/thief"), destination=Peer(pod="shop/server"), target=90, secured=True)
    requests, connections = finder(thief, False), finder(thief, True)
    assert requests is not None
    assert connections is not None
    assert (requests.key, requests.opens, connections.opens) == (connections.key, True, False)


def test_only_audited_rules_have_a_digest_which_changes_with_the_rules():
    assert rules_digest(CLOSED) == rules_digest(Access()) == ""
    other = structs.replace(AUDITED, grants=(structs.replace(GRANT, port=90),))
    assert rules_digest(AUDITED) == call(AUDITED, GATEWAY).audit != rules_digest(other)


def test_calls_follow_the_mesh_and_ended_pods_keep_their_identity():
    """The last report of a pod arrives after its end."""
    mesh: Latest[Compiled | None] = Latest(None)
    finder = CallFinder(mesh)
    flow = Flow(source=Peer(pod="shop/thief"), destination=Peer(pod="shop/server"), target=90)
    assert finder(flow, True) is None
    mesh.set(shop_mesh(AUDITED))
    assert (found := finder(flow, True)) is not None
    assert found.key.caller == THIEF
    mesh.set(shop_mesh(CLOSED, "server", "buyer"))
    assert (found := finder(flow, True)) is not None
    assert (found.key.caller, found.audit) == (THIEF, "")
