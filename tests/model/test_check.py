"""The check of a mesh finds violated invariants."""

import pytest
from msgspec import structs

from headgate.model.access import Access, ConnectionRule, Grant
from headgate.model.check import check
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import (
    Broken,
    Endpoint,
    Endpoints,
    Frontend,
    InboundPort,
    Mesh,
    PortProtocol,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    SlotRange,
    Split,
    Sticky,
    Target,
    Workload,
)
from headgate.resources.meta import Key

WEB = PortRef("default/web", 80)
GONE = PortRef("default/gone", 80)


FRONTENDS = (Frontend(service="default/web", ports=(80,)),)


def mesh(*targets, frontends=FRONTENDS):
    table = RouteTable(ref=WEB, routes=(Route(split=Split(targets=targets)),))
    return Mesh(domain="cluster.local", frontends=frontends, tables=(table,), endpoints=(Endpoints(ref=WEB, ready=()),))


def test_a_valid_mesh_has_no_violations():
    assert check(mesh(Target(ref=WEB, weight=1))) == ()


def test_routes_without_a_frontend_are_a_violation():
    assert check(mesh(frontends=())) == ("default/web:80 has routes, but no frontend",)


def test_a_target_without_an_endpoints_entry_is_a_violation():
    wrong = check(mesh(Target(ref=GONE, weight=1)))
    assert wrong == ("default/web:80 sends to default/gone:80, which has no entry in the endpoints",)


def test_a_target_with_weight_0_is_a_violation():
    assert check(mesh(Target(ref=WEB, weight=0))) == ("default/web:80 has the weight 0 for default/web:80",)


def test_slots_that_differ_from_the_weights_are_a_violation():
    sticky = Sticky(kind="source", slot_ranges=(SlotRange(slots=9_000, ref=WEB), SlotRange(slots=500)))
    split = Split(targets=(Target(ref=WEB, weight=9_000),), broken=(Broken(weight=1_000, reason="X"),), sticky=sticky)
    table = RouteTable(ref=WEB, routes=(Route(split=split),))
    found = Mesh(domain="d", frontends=FRONTENDS, tables=(table,), endpoints=(Endpoints(ref=WEB, ready=()),))
    assert check(found) == (
        "default/web:80 has 9500 slots, not 10000",
        "default/web:80 has slots that differ from the weights of its broken shares",
    )


HTTP = (PortProtocol(protocol=Protocol.HTTP),)
PORT = InboundPort(port=80, application=80, protocols=HTTP)
REDIRECTED = InboundPort(port=80, application=90, protocols=HTTP)
POD = Workload(name="default/a", address="10.0.0.1", identity="spiffe://cluster.local/ns/default/sa/a", ports=(PORT,))
GRANT = Grant(origin=Key("", "T", "default", "t"), sources=("spiffe://x",), connections=(ConnectionRule(name="all"),))


def faults(*workloads):
    return check(Mesh(domain="cluster.local", workloads=workloads))


def test_valid_workloads_have_no_violations():
    closed = Access(closed=True, grants=(GRANT,))
    other = structs.replace(
        POD, name="default/b", address="10.0.0.2", capture="explicit", ports=(REDIRECTED,), access=closed
    )
    assert faults(POD, other) == ()


@pytest.mark.parametrize(("what", "other"), [("name", {"address": "10.0.0.2"}), ("address", {"name": "default/b"})])
def test_workloads_with_the_same_name_or_address_are_a_violation(what, other):
    assert faults(POD, structs.replace(POD, **other)) == (f"two workloads have the {what} {getattr(POD, what)}",)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"identity": "spiffe://other/ns/default/sa/a"}, "is not in the trust domain cluster.local"),
        ({"target_tls_mode": TlsMode.READY}, "has the target TLS mode READY, which is a transition"),
        ({"ports": (PORT, PORT)}, "has a port twice"),
        ({"ports": (REDIRECTED,)}, "is transparent, but its process listens on another port"),
        ({"ports": (PORT,), "capture": "explicit"}, "has two listeners on one port"),
        ({"ports": (InboundPort(port=80, application=80, protocols=()),)}, "has no protocol"),
        ({"ports": (InboundPort(port=80, application=80, protocols=HTTP * 2),)}, "has no protocol, or a repeated one"),
        ({"access": Access(grants=(GRANT,))}, "is open, but has grants"),
        (
            {"access": Access(closed=True, grants=(GRANT,)), "target_tls_mode": TlsMode.PLAIN},
            "has grants, but its target TLS mode accepts no mutual TLS",
        ),
        ({"access": Access(closed=True, grants=(structs.replace(GRANT, sources=()),))}, "has a grant without sources"),
        (
            {"access": Access(closed=True, grants=(structs.replace(GRANT, connections=()),))},
            "has a grant without rules",
        ),
    ],
)
def test_an_inconsistent_workload_is_a_violation(changes, fault):
    (found,) = faults(structs.replace(POD, **changes))
    assert found.startswith("workload default/a ")
    assert fault in found


@pytest.mark.parametrize("tls_mode", [TlsMode.PLAIN, TlsMode.READY])
def test_an_endpoint_identity_without_a_workload_is_a_violation(tls_mode):
    endpoint = Endpoint(address="10.0.0.1", port=80, identity=POD.identity)
    found = Mesh(
        domain="cluster.local",
        endpoints=(Endpoints(ref=WEB, ready=(endpoint,)),),
        workloads=(structs.replace(POD, tls_mode=tls_mode),),
    )
    assert check(found) == (f"default/web:80 requires {POD.identity}, which no workload has",)
