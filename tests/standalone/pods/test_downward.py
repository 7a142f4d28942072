"""The downward API: resources of containers as variables."""

import os
from typing import Any

import pytest
from tests.make.objects import pod

from headgate.resources.core.pod_spec import Container, Pod
from headgate.resources.core.pod_volumes import ResourceFieldRef
from headgate.resources.decode import read
from headgate.standalone.pods.downward import field_value, resource_value
from headgate.standalone.pods.runs import ConfigError
from headgate.standalone.pods.status import ObservedPod, pod_status

RESOURCES = {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"memory": "1M"}}


def value(resource: str, divisor: Any = "0", resources: Any = RESOURCES) -> str:
    container = read({"name": "app", "resources": resources}, Container)
    return resource_value(container, ResourceFieldRef(resource=resource, divisor=divisor), "env[0]")


@pytest.mark.parametrize(
    ("resource", "divisor", "expected"),
    [
        ("limits.cpu", "0", "2"),  # rounded up
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "64"),
        ("requests.memory", "1", "1000000"),
        ("requests.memory", "1Ki", "977"),
        ("requests.cpu", "1m", "1500"),  # a request without a value is the limit
    ],
)
def test_a_resource_is_counted_in_units_of_the_divisor(resource, divisor, expected):
    assert value(resource, divisor) == expected


def test_without_a_limit_the_value_is_what_the_machine_has():
    assert value("limits.cpu", resources=None) == str(len(os.sched_getaffinity(0)))
    assert int(value("limits.memory", resources=None)) > 0
    assert value("requests.memory", resources=None) == "0"


@pytest.mark.parametrize(
    ("resource", "divisor", "message"),
    [("limits.disk", "1", "resource 'limits.disk' is unknown"), ("limits.cpu", "x", "'x' is not a quantity")],
)
def test_the_error_names_what_is_wrong(resource, divisor, message):
    with pytest.raises(ConfigError, match=message):
        value(resource, divisor)


@pytest.mark.parametrize(("address", "host"), [("127.80.128.4", "127.0.0.1"), ("10.80.128.4", "10.80.255.254")])
def test_the_address_of_the_host_is_reachable_from_the_pod(address, host):
    made = read(pod("web"), Pod)
    for path in ("status.hostIP", "status.hostIPs"):
        assert field_value(made, path, address=address, where="env[0]") == host
    assert pod_status(pod("web"), made, {}, ObservedPod(address, now=0.0))["hostIP"] == host
