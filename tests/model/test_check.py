"""The checker of meshes finds what no compiler may write."""

from headgate.model.check import check
from headgate.model.filters import Side, Sticky
from headgate.model.refs import PortRef
from headgate.model.routing import Broken, Endpoints, Frontend, Mesh, Route, RouteTable, Split, Target

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
    sticky = Sticky(kind="source", sides=(Side(slots=9_000, ref=WEB), Side(slots=500)))
    split = Split(targets=(Target(ref=WEB, weight=9_000),), broken=(Broken(weight=1_000, reason="X"),), sticky=sticky)
    table = RouteTable(ref=WEB, routes=(Route(split=split),))
    found = Mesh(domain="d", frontends=FRONTENDS, tables=(table,), endpoints=(Endpoints(ref=WEB, ready=()),))
    assert check(found) == (
        "default/web:80 has 9500 slots, not 10000",
        "default/web:80 has slots that are not the weight of what fails",
    )
