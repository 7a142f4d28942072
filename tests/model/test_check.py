"""The checker of meshes finds what no compiler may write."""

from headgate.model.check import check
from headgate.model.refs import PortRef
from headgate.model.routing import Endpoints, Frontend, Mesh, Route, RouteTable, Split, Target

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
