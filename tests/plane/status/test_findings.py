"""Findings about mirrored requests that proxies drop."""

import pytest

from headgate.compiler.reasons import Reason
from headgate.kinds import GATEWAY, SPLIT
from headgate.model.host_names import by_host
from headgate.model.routing import GatewayPort, HostRoutes, Mesh, Mirror, PortRef, Route, Split, Target
from headgate.plane.status.findings import dropped_copies
from headgate.resources.meta import Key

SHOP = PortRef("default/shop", 80)
ROUTE = Key(GATEWAY, "HTTPRoute", "default", "route")
INSIDERS = Key(SPLIT, "TrafficSplit", "default", "insiders")


def mesh(*mirrors):
    routes = tuple(
        Route(split=Split(targets=()), name=str(number), origin=ROUTE, mirrors=(mirror,) if mirror else ())
        for number, mirror in enumerate(mirrors)
    )
    port = GatewayPort(
        gateway="default/edge", address="127.0.0.1", port=80, hosts=by_host(HostRoutes(host="*", routes=routes))
    )
    return Mesh(domain="cluster.local", gateways=(port,))


def mirror(ref, split=None):
    return Mirror(ref=ref, targets=(Target(ref=ref, weight=1),), numerator=1, denominator=1, split=split)


@pytest.mark.parametrize(
    ("cluster", "split"),
    [
        ("mirror/default/shop/80", None),
        ("mirror/default/shop/80/to/default/shop-v1", None),
        ("mirror/default/shop/80/default/insiders", INSIDERS),
        ("mirror/default/shop/80/from/gateway/default/edge/80", None),
        ("mirror/default/shop/80/from/gateway/default/edge/80/to/default/shop-v1", None),
    ],
)
def test_dropped_copies_cause_a_finding_about_the_rule_with_the_mirror(cluster, split):
    found = dropped_copies(mesh(None, mirror(SHOP, split), mirror(PortRef("default/shop", 8080))), {cluster: 1234})
    (finding,) = found
    assert (finding.about, finding.reason) == (ROUTE, Reason.COPIES_DROPPED)
    assert finding.field == "spec.rules[1].filters"
    assert finding.message.startswith("proxies drop copies for default/shop:80, 1000 or more so far: ")


def test_the_message_changes_only_when_the_count_has_more_digits():
    before, after, later = (
        dropped_copies(mesh(mirror(SHOP)), {"mirror/default/shop/80": count}) for count in (200, 999, 1000)
    )
    assert before == after
    assert after != later


def test_dropped_copies_of_another_mirror_to_the_same_service_are_not_counted():
    assert not dropped_copies(mesh(mirror(SHOP)), {"mirror/default/shop/80/default/insiders": 1})
