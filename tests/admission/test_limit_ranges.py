"""Sidecars fit into the LimitRanges of their namespace."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.make.objects import container, deployment, pod

from headgate.admission.injection import PodNamespace
from headgate.admission.limit_ranges import fit_warnings, fitted
from headgate.admission.namespace_limits import NamespaceLimits
from headgate.admission.review import review
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.resources.meta import Object

DEFAULT = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
LABEL = {"headgate.dev/inject": "true"}


def limit_range(type: str = "Container", **bounds: Mapping[str, str]) -> Object:
    return {"metadata": {"name": "small", "namespace": "shop"}, "spec": {"limits": [{"type": type, **bounds}]}}


@pytest.mark.parametrize(
    ("bounds", "requests", "limits"),
    [
        ({"max": {"memory": "512Mi"}}, {"cpu": "20m", "memory": "64Mi"}, {"memory": "512Mi"}),
        ({"max": {"memory": "32Mi"}}, {"cpu": "20m", "memory": "32Mi"}, {"memory": "32Mi"}),
        ({"max": {"cpu": "10m"}}, {"cpu": "10m", "memory": "64Mi"}, {"cpu": "10m", "memory": "1Gi"}),
        ({"min": {"cpu": "50m", "memory": "2Gi"}}, {"cpu": "50m", "memory": "2Gi"}, {"memory": "2Gi"}),
        ({"default": {"cpu": "500m"}}, {"cpu": "20m", "memory": "64Mi"}, {"cpu": "500m", "memory": "1Gi"}),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"cpu": "20m", "memory": "64Mi"},
            {"cpu": "40m", "memory": "1Gi"},
        ),
        (
            {"default": {"cpu": "500m"}, "maxLimitRequestRatio": {"cpu": "4", "memory": "3"}},
            {"cpu": "125m", "memory": "357913942"},
            {"cpu": "500m", "memory": "1Gi"},
        ),
    ],
)
def test_the_resources_of_a_sidecar_fit_into_the_bounds(
    bounds: Mapping[str, Any], requests: Mapping[str, str], limits: Mapping[str, str]
) -> None:
    assert fitted(DEFAULT, [limit_range(**bounds)]) == {"requests": requests, "limits": limits}


def test_the_narrowest_of_several_limit_ranges_counts_and_only_those_for_containers() -> None:
    several = [
        limit_range(max={"memory": "512Mi"}),
        limit_range(max={"memory": "256Mi"}),
        limit_range("Pod", max={"memory": "1Mi"}),
    ]
    assert fitted(DEFAULT, several)["limits"] == {"memory": "256Mi"}
    assert fitted(DEFAULT, [limit_range("Pod", max={"memory": "1Mi"})]) == DEFAULT


def test_a_missing_request_gets_the_default_of_the_limit_range() -> None:
    empty: Mapping[str, Mapping[str, str]] = {"requests": {}, "limits": {}}
    ranges = [limit_range(defaultRequest={"cpu": "10m"}, default={"memory": "1Gi"})]
    assert fitted(empty, ranges) == {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert list(fit_warnings(empty, ranges)) == []


def test_an_injected_pod_fits_and_its_workload_is_warned_of_it() -> None:
    small = limit_range(max={"memory": "512Mi"})
    sidecars = transparent_sidecars(
        "all",
        SidecarOptions(image="i", xds="x:1"),
        limits=lambda name: NamespaceLimits([small] if name == "shop" else []),
    )
    web = pod("web", namespace="shop", containers=[container("web", 8080)])
    around = PodNamespace(labels={}, configs=())
    created: Any = sidecars.create(web, around, True)
    proxies = [
        entry
        for entry in (*created["spec"]["containers"], *created["spec"]["initContainers"])
        if entry["name"] != "web"
    ]
    assert [entry["resources"]["limits"]["memory"] for entry in proxies] == ["512Mi", "512Mi"]
    (warning,) = review(deployment("web", namespace="shop"), None, NoObjects(), sidecars).warnings
    assert warning.startswith(
        "the sidecar gets the memory limit 512Mi instead of 1Gi, to fit into the LimitRange small"
    )
    assert review(deployment("web", namespace="other"), None, NoObjects(), sidecars).warnings == ()


class NoObjects:
    """A view without objects."""

    def get(self, _key: object) -> None:
        return None

    def select(self, _group: str, _kind: str, _namespace: str) -> list[Object]:
        return []
