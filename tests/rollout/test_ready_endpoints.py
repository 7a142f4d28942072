"""A canary is ready while a port of its Service has a ready endpoint (D33). A rollout waits for Services that do not exist."""

from typing import Any

import pytest
from tests.make.objects import endpoint, endpoint_slice, service
from tests.make.values import snapshot
from tests.rollout.canaries import plan_of, website_canary

from headgate.rollout.ready_endpoints import canary_is_ready, missing_services

DOMAIN = "cluster.local"
READY = endpoint_slice("v2", [endpoint("127.0.0.2"), endpoint("127.0.0.3", ready=False)], {"http": 8080})


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([service("v2"), READY], True),
        ([service("v2"), endpoint_slice("v2", [endpoint("127.0.0.2", ready=False)], {"http": 8080})], False),
        ([service("v2"), endpoint_slice("v1", ["127.0.0.2"], {"http": 8080})], False),
        ([service("v2"), endpoint_slice("v2", ["127.0.0.2"], {"metrics": 9090})], False),
        ([service("v2")], False),
        ([READY], False),
        ([service("v2", type="ExternalName", externalName="example.org")], True),
    ],
)
def test_the_ready_endpoints_of_the_canarys_service_decide(objects: list[Any], *, expected: bool) -> None:
    assert canary_is_ready(plan_of(website_canary()), "default", snapshot(*objects), DOMAIN) is expected


def test_a_canary_counts_as_ready_while_nothing_is_known() -> None:
    assert canary_is_ready(plan_of(website_canary()), "default", None, DOMAIN)
    assert canary_is_ready(plan_of(website_canary(analysis=None)), "default", snapshot(), DOMAIN)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], ("v1", "v2")),
        ([service("v1")], ("v2",)),
        ([service("v1"), service("v2", namespace="other")], ("v2",)),
        ([service("v1"), service("v2")], ()),
    ],
)
def test_backends_without_a_service_are_missing(objects: list[Any], expected: tuple[str, ...]) -> None:
    assert missing_services(plan_of(website_canary()), "default", snapshot(*objects), DOMAIN) == expected
    assert missing_services(plan_of(website_canary(analysis=None)), "default", snapshot(*objects), DOMAIN) == expected
    assert missing_services(plan_of(website_canary()), "default", None, DOMAIN) == ()
