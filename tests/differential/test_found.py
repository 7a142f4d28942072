"""What random worlds have found, each as one small world."""

import pytest
from tests.differential.test_worlds import check
from tests.differential.worlds import Sent
from tests.properties.worlds import key_of, named

pytestmark = pytest.mark.e2e


def world(pattern):
    """Return a Service `a` whose requests with a fitting `x-a` go to `b`."""
    found = [
        named("HTTPRouteGroup", "default", "g", spec={"matches": [{"name": "m", "headers": {"x-a": pattern}}]}),
        named(
            "TrafficSplit",
            "default",
            "s",
            spec={
                "service": "a",
                "backends": [{"service": "b", "weight": 1}],
                "matches": [{"kind": "HTTPRouteGroup", "name": "g"}],
            },
        ),
    ]
    for number, name in enumerate("ab"):
        ports = [{"name": "http", "port": 8080}]
        found.append(named("Service", "default", name, spec={"clusterIP": f"address-{number + 1}", "ports": ports}))
        found.append(
            named(
                "EndpointSlice",
                "default",
                name,
                metadata={"labels": {"kubernetes.io/service-name": name}},
                addressType="IPv4",
                endpoints=[{"addresses": ["127.0.0.1"]}],
                ports=[{"name": "http", "port": f"member-{number}"}],
            )
        )
    return {key_of(obj): obj for obj in found}


def sent(*values):
    return Sent(
        service="default/a",
        port=8080,
        via="address",
        authority="a",
        method="GET",
        target="/",
        headers=tuple(("x-a", value) for value in values),
    )


def test_an_empty_expression_fits_the_empty_value(lab):
    mesh = lab.serve(world("")).mesh
    for values in ((), ("",), ("a",)):
        check(lab, mesh, sent(*values))


@pytest.mark.parametrize("pattern", ["a|b", "a,b", ",,b", ".*b"])
def test_several_values_of_a_header_are_one(lab, pattern):
    mesh = lab.serve(world(pattern)).mesh
    for values in (("a", "b"), ("", "", "b"), ("b",), ("a", "a")):
        check(lab, mesh, sent(*values))
