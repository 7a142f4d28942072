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


@pytest.mark.parametrize(
    ("most", "amount"),
    [
        ({"memory": "1Gi"}, "1Gi of memory, and a pod with its sidecar has limits of 1088Mi"),
        ({"memory": "1088Mi"}, ""),
        ({"cpu": "2", "ephemeral-storage": "1Gi"}, "2 of cpu, and a pod with its sidecar has no limit"),
    ],
)
def test_a_maximum_for_pods_that_a_pod_with_its_sidecar_exceeds_has_a_warning(most: Object, amount: str) -> None:
    """Sidecars are not fitted to it: the containers of the application count too."""
    resources = {"limits": {"memory": "64Mi"}}, {"limits": {"memory": "1Gi"}}
    web = pod("web", containers=[{"name": str(index), "resources": each} for index, each in enumerate(resources)])
    limits = NamespaceLimits([{"metadata": {"name": "pods"}, "spec": {"limits": [{"type": "Pod", "max": most}]}}])
    texts = list(limits.warnings(proxy_settings(), web))
    assert [text.partition(": the API server refuses")[0] for text in texts] == (
        [f"the LimitRange pods allows pods with at most {amount}"] if amount else []
    )
