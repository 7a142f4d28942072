"""The order of a split is random while the analysis of a Canary compares its backends, else a rotation (R108)."""

import pytest
from tests.make.objects import (
    Object,
    backed_service,
    canary,
    gateway,
    owner_reference,
    route,
    rule,
    split,
)
from tests.make.values import compiled

from headgate.model.routing import PortRef, Split

NEXT = {"canary": "v2"}
SHARES = {"v1": 9, "v2": 1}
SERVICES = [
    item
    for number, name in enumerate(("web", "v1", "v2", "v3"))
    for item in backed_service(name, ("", f"10.1.0.{number}"))
]
EDGE = gateway("edge", status={"addresses": [{"type": "IPAddress", "value": "10.2.0.1"}]})


def rollout(weights: dict[str, int], *, analysis: object = NEXT) -> tuple[Object, Object]:
    """Return a Canary and its split with the weights of a step."""
    owner = canary("web", SHARES, analysis=analysis, metadata={"uid": "0f8fad5b"})
    owned = split("web", weights, metadata={"ownerReferences": [owner_reference(owner)]})
    return owner, owned


def root_split(*objects: Object) -> Split:
    result = compiled(*SERVICES, *objects)
    (table,) = (table for table in result.mesh.tables if table.ref == PortRef("default/web", 8080))
    return table.routes[0].split


def test_the_split_of_a_canary_under_analysis_has_a_random_order():
    assert root_split(*rollout(SHARES)).order == "random"


@pytest.mark.parametrize(
    "objects",
    [
        [split("web", SHARES)],
        rollout(SHARES)[1:],
        rollout(SHARES, analysis=None),
        rollout({"v1": 1, "v2": 0}),
        rollout({"v1": 0, "v2": 1}),
    ],
    ids=["no Canary", "a deleted Canary", "a Canary without analysis", "before the first share", "after the rollout"],
)
def test_other_splits_rotate(objects):
    assert root_split(*objects).order == "rotation"


def test_the_rule_of_a_route_to_the_root_has_its_order():
    for objects, order in ((rollout(SHARES), "random"), ([split("web", SHARES)], "rotation")):
        for weights in ({"web": 1}, {"web": 1, "v3": 1}):
            behind = route("route", rule(weights), parents=[{"name": "edge"}])
            (port,) = compiled(*SERVICES, EDGE, behind, *objects).mesh.gateways
            assert port.hosts["*"].routes[0].split.order == order
