"""Routes whose backends are the roots of splits: through which root a request comes, and the mirror of the split."""

from fractions import Fraction

import pytest
from tests.make.objects import Object, backed_service, gateway, headgate_keys, route, rule, split
from tests.make.values import compiled

from headgate.envoy import names
from headgate.model.routing import PortRef, Protocol
from headgate.resources.meta import Key

SERVICES = [
    item for name in ("web", "mall", "v1", "v2", "v3") for item in backed_service(name, ("", f"10.1.0.{len(name)}"))
]
EDGE = gateway("edge", status={"addresses": [{"type": "IPAddress", "value": "10.1.0.8"}]})
BY = Key("split.smi-spec.io", "TrafficSplit", "default", "web")


def even_split(root: str, *backends: str, **annotations: str) -> Object:
    return split(root, dict.fromkeys(backends, 1), annotations=headgate_keys(**annotations))


def routed(*objects, **weights):
    """Return the only route of a Gateway whose rule has these backends."""
    routed_by = route("route", rule(weights), parents=[{"name": "edge"}])
    (port,) = compiled(*SERVICES, EDGE, routed_by, *objects).mesh.gateways
    (found,) = port.hosts["*"].routes
    return found


def roots(route):
    return {target.ref.service.removeprefix("default/"): target.root for target in route.split.targets}


@pytest.mark.parametrize("sticky", [{}, {"sticky": "header:x-user"}])
def test_the_backends_of_a_root_name_it(sticky):
    found = routed(even_split("web", "v1", "v2", **sticky), web=1)
    assert roots(found) == {"v1": "default/web", "v2": "default/web"}


def test_the_backends_of_several_roots_name_theirs_and_other_backends_none():
    found = routed(even_split("web", "v1"), even_split("mall", "v2"), web=2, mall=1, v3=1)
    assert roots(found) == {"v1": "default/web", "v2": "default/mall", "v3": ""}


@pytest.mark.parametrize("weights", [{"web": 1, "v1": 1}, {"web": 1, "mall": 1}])
def test_no_backend_of_a_root_names_it_if_one_of_them_is_reached_in_another_way_too(weights):
    """Requests to v1 may have come in both ways, so a comparison of v1 with v2 would not be one of equal requests."""
    found = routed(even_split("web", "v1", "v2"), even_split("mall", "v1"), **weights)
    assert roots(found) == {"v1": "", "v2": ""}


def test_a_backend_without_weight_is_no_other_way():
    assert roots(routed(even_split("web", "v1", "v2"), web=1, v1=0)) == {"v1": "default/web", "v2": "default/web"}


def test_a_rule_has_the_mirror_of_its_root_for_the_roots_part_of_its_requests():
    found = routed(even_split("web", "v1", "v2", mirror="v2=20%"), web=1, v3=3)
    (mirror,) = found.mirrors
    assert (mirror.ref, mirror.by) == (PortRef("default/v2", 8080), BY)
    assert Fraction(mirror.numerator, mirror.denominator) == Fraction(20, 400)
    assert routed(even_split("web", "v1", "v2", mirror="v2=20%"), web=0, v3=3).mirrors == ()


def test_the_cluster_of_a_splits_mirror_is_not_that_of_rules():
    ref = PortRef("default/v2", 8080)
    name = names.mirror(ref, by=BY)
    secured = names.secured(name, names.GatewayRef("default/edge", 80))
    own = names.mirror(ref, by=BY, protocol=Protocol.HTTP2)
    parts = [names.backend_mirror(each, "a/b") for each in (name, own, secured)]
    for cluster in (name, own, secured, *parts):
        assert (names.parse(cluster), names.mirroring_split(cluster)) == (ref, "default/web")
    rules = [
        names.mirror(ref),
        names.mirror(ref, Key("", "", "by", "x")),
        names.mirror(ref, protocol=Protocol.HTTP2),
        names.backend_mirror(names.mirror(ref), "a/b"),
        names.secured(names.mirror(ref), names.GatewayRef("default/edge", 80)),
    ]
    assert [names.mirroring_split(rule_name) for rule_name in rules] == [""] * 5
