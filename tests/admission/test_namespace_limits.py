"""LimitRanges and ResourceQuotas of a namespace apply together."""

import pytest
from tests.make.objects import pod

from headgate.admission.namespace_limits import NamespaceLimits
from headgate.admission.proxy_settings import proxy_settings
from headgate.resources.meta import Object

QUOTA: Object = {"metadata": {"name": "quota"}, "spec": {"hard": {"limits.cpu": "4"}}}


def limit_range(**bounds: Object) -> Object:
    return {"metadata": {"name": "range"}, "spec": {"limits": [{"type": "Container", **bounds}]}}


@pytest.mark.parametrize(
    ("bounds", "limit", "reason"),
    [
        ({}, "1", "because the ResourceQuota quota needs one"),
        ({"default": {"cpu": "300m"}}, "300m", ""),
        ({"max": {"cpu": "500m"}}, "500m", ""),
        ({"min": {"cpu": "2"}}, "2", "because the ResourceQuota quota needs one"),
    ],
)
def test_a_value_that_a_quota_demands_is_the_default_of_a_limit_range_or_fits_into_it(
    bounds: Object, limit: str, reason: str
) -> None:
    limits, settings, web = NamespaceLimits([limit_range(**bounds)], [QUOTA]), proxy_settings(), pod("web")
    assert limits.fitted(settings, web).resources["limits"]["cpu"] == limit
    warnings = list(limits.warnings(settings, web))
    assert any(f"the cpu limit {limit}, {reason}" in text for text in warnings) == bool(reason)
    assert all("ResourceQuota" not in text for text in warnings) == (not reason)
