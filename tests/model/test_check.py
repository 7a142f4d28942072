"""The checker of meshes finds what no compiler may write."""

import pytest
from msgspec import structs

from headgate.model.check import check
from headgate.model.routing import (
    Access,
    Broken,
    ConnectionRule,
    Endpoint,
    Endpoints,
    Frontend,
    Grant,
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
    TlsMode,
    Workload,
)
from headgate.resources.meta import Key

WEB = PortRef("default/web", 80)
GONE = PortRef("default/gone", 80)


FRONTENDS = (Frontend(service="default/web", ports=(80,)),)


def mesh(*targets, frontends=FRONTENDS):
    table = RouteTable(ref=WEB, routes=(Route(split=Split(targets=targets)),))
    return Mesh(domain="cluster.local", frontends=frontends, tables=(table,), endpoints=(Endpoints(ref=WEB, ready=()),))


def test_a_sound_mesh():
    assert check(mesh(Target(ref=WEB, weight=1))) == ()


def test_routes_that_nobody_can_reach():
    assert check(mesh(frontends=())) == ("default/web:80 has routes and no frontend",)


def test_targets_without_endpoints():
    wrong = check(mesh(Target(ref=GONE, weight=1)))
    assert wrong == ("default/web:80 sends to default/gone:80, whose endpoints are not listed",)


def test_weights_that_envoy_would_refuse():
    assert check(mesh(Target(ref=WEB, weight=0))) == ("default/web:80 has the weight 0 for default/web:80",)


def test_slots_that_are_not_the_weights():
    sticky = Sticky(kind="source", slot_ranges=(SlotRange(slots=9_000, ref=WEB), SlotRange(slots=500)))
    split = Split(targets=(Target(ref=WEB, weight=9_000),), broken=(Broken(weight=1_000, reason="X"),), sticky=sticky)
    table = RouteTable(ref=WEB, routes=(Route(split=split),))
    found = Mesh(domain="d", frontends=FRONTENDS, tables=(table,), endpoints=(Endpoints(ref=WEB, ready=()),))
    assert check(found) == (
        "default/web:80 has 9500 slots, not 10000",
        "default/web:80 has slots that are not the weight of what fails",
    )


HTTP = (PortProtocol(protocol=Protocol.HTTP),)
PORT = InboundPort(port=80, application=80, protocols=HTTP)
BEHIND = InboundPort(port=80, application=90, protocols=HTTP)
POD = Workload(name="default/a", address="10.0.0.1", identity="spiffe://cluster.local/ns/default/sa/a", ports=(PORT,))
GRANT = Grant(origin=Key("", "T", "default", "t"), sources=("spiffe://x",), connections=(ConnectionRule(name="all"),))


def faults(*workloads):
    return check(Mesh(domain="cluster.local", workloads=workloads))


def test_sound_workloads():
    closed = Access(closed=True, grants=(GRANT,))
    other = structs.replace(
        POD, name="default/b", address="10.0.0.2", capture="explicit", ports=(BEHIND,), access=closed
    )
    assert faults(POD, other) == ()


@pytest.mark.parametrize(("what", "other"), [("name", {"address": "10.0.0.2"}), ("address", {"name": "default/b"})])
def test_workloads_that_nobody_could_tell_apart(what, other):
    assert faults(POD, structs.replace(POD, **other)) == (f"two workloads have the {what} {getattr(POD, what)}",)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"identity": "spiffe://other/ns/default/sa/a"}, "none of cluster.local"),
        ({"target_tls_mode": TlsMode.READY}, "between plaintext and TLS"),
        ({"ports": (PORT, PORT)}, "a port twice"),
        ({"ports": (BEHIND,)}, "listens elsewhere"),
        ({"ports": (PORT,), "capture": "explicit"}, "where something else does"),
        ({"ports": (InboundPort(port=80, application=80, protocols=()),)}, "no protocol"),
        ({"ports": (InboundPort(port=80, application=80, protocols=HTTP * 2),)}, "or one twice"),
        ({"access": Access(grants=(GRANT,))}, "is open"),
        ({"access": Access(closed=True, grants=(GRANT,)), "target_tls_mode": TlsMode.PLAIN}, "takes no TLS"),
        ({"access": Access(closed=True, grants=(structs.replace(GRANT, sources=()),))}, "has a grant without sources"),
        ({"access": Access(closed=True, grants=(structs.replace(GRANT, connections=()),))}, "do nothing"),
    ],
)
def test_workloads_that_no_compiler_may_write(changes, fault):
    (found,) = faults(structs.replace(POD, **changes))
    assert found.startswith("workload default/a ")
    assert fault in found


@pytest.mark.parametrize("tls_mode", [TlsMode.PLAIN, TlsMode.READY])
def test_callers_that_ask_for_what_nobody_can_prove(tls_mode):
    place = Endpoint(address="10.0.0.1", port=80, identity=POD.identity)
    found = Mesh(
        domain="cluster.local",
        endpoints=(Endpoints(ref=WEB, ready=(place,)),),
        workloads=(structs.replace(POD, tls_mode=tls_mode),),
    )
    assert check(found) == (f"default/web:80 is to prove {POD.identity}, and no workload there can",)
