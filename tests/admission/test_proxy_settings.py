"""What injected sidecars may use: resources, threads, log level."""

from collections.abc import Mapping, Sequence

import pytest
from tests.admission.web_pod import OPTIONS, web_pod

from headgate.admission.injection import PodNamespace
from headgate.admission.proxy_settings import proxy_settings
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars, with_transparent_sidecar
from headgate.kubernetes.gateway_pods import gateway_pod
from headgate.options import MeshOptions
from headgate.resources.core.namespace import namespace_causes
from headgate.resources.core.pod import pod_causes
from headgate.resources.meta import Object

DEFAULT = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}


def annotated(**values: str) -> Object:
    """Return a pod with annotations such as `cpu_limit="1"`, which is `headgate.dev/proxy-cpu-limit`."""
    written = {f"headgate.dev/proxy-{name.replace('_', '-')}": value for name, value in values.items()}
    found = web_pod()
    return {**found, "metadata": {**found["metadata"], "annotations": written}}


def resources(**values: str) -> Mapping[str, Mapping[str, str]]:
    spec = with_transparent_sidecar(annotated(**values), OPTIONS)["spec"]
    sidecar, redirection = spec["containers"][0], spec["initContainers"][-1]
    assert redirection["resources"] == sidecar["resources"]
    found: Mapping[str, Mapping[str, str]] = sidecar["resources"]
    return found


def test_a_sidecar_has_small_requests_and_a_memory_limit() -> None:
    assert resources() == DEFAULT


def test_annotations_replace_requests_and_limits() -> None:
    assert resources(cpu="100m", memory="256Mi", cpu_limit="2", memory_limit="512Mi") == {
        "requests": {"cpu": "100m", "memory": "256Mi"},
        "limits": {"cpu": "2", "memory": "512Mi"},
    }


@pytest.mark.parametrize(
    ("values", "requests", "limits"),
    [
        ({"memory_limit": "32Mi"}, {"cpu": "20m", "memory": "32Mi"}, {"memory": "32Mi"}),
        ({"memory": "2Gi"}, {"cpu": "20m", "memory": "2Gi"}, {"memory": "2Gi"}),
        ({"cpu_limit": "10m"}, {"cpu": "10m", "memory": "64Mi"}, {"memory": "1Gi", "cpu": "10m"}),
    ],
)
def test_a_default_never_contradicts_an_annotation(
    values: Mapping[str, str], requests: Mapping[str, str], limits: Mapping[str, str]
) -> None:
    """An API server rejects a request above its limit."""
    assert resources(**values) == {"requests": requests, "limits": limits}


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"cpu": "fast"}, "proxy-cpu", "'fast' is not a quantity; write for example 1, 500m or 1.5"),
        ({"memory": "128MB"}, "proxy-memory", "unknown suffix 'MB'"),
        ({"memory": "128"}, "proxy-memory", "less than 1Mi; write the unit, for example 128Mi"),
        ({"cpu_limit": "0"}, "proxy-cpu-limit", "must be more than 0, not '0'"),
        ({"cpu": ""}, "proxy-cpu", "is not a quantity"),
        ({"concurrency": "65"}, "proxy-concurrency", "must be a number of threads from 1 to 64, not '65'"),
        ({"log_level": "verbose"}, "proxy-log-level", "must be trace, debug, info, warning, error, critical or off"),
        ({"cpu": "2", "cpu_limit": "1"}, "proxy-cpu", "at most the limit in headgate.dev/proxy-cpu-limit"),
    ],
)
def test_an_invalid_quantity_is_rejected_with_its_field(values: Mapping[str, str], field: str, message: str) -> None:
    (cause,) = pod_causes(annotated(**values))
    assert cause.field == f"metadata.annotations.headgate.dev/{field}"
    assert message in cause.message


def test_valid_quantities_are_accepted() -> None:
    assert not list(pod_causes(annotated(cpu="0.1", memory="1e8", cpu_limit="250m", memory_limit="1G")))


def test_a_gateway_has_requests_and_no_limit() -> None:
    """At a memory limit, Kubernetes would kill a busy Gateway and so close all its connections."""
    assert gateway_pod(OPTIONS, {})["containers"][0]["resources"] == {"requests": DEFAULT["requests"]}


def test_the_annotation_of_a_pod_is_stronger_than_its_namespaces_and_that_than_the_meshs_option() -> None:
    mesh = MeshOptions(proxy_cpu="50m", proxy_memory="96Mi", proxy_memory_limit="", proxy_concurrency="2")
    options = SidecarOptions(image="headgate:1", xds="headgate:15010", proxy=mesh.proxy)
    namespace = {"headgate.dev/proxy-memory": "128Mi", "headgate.dev/proxy-log-level": "info"}
    sidecar = transparent_sidecars("all", options).create(
        annotated(log_level="debug", cpu_limit="1"), PodNamespace(labels={}, configs=(), annotations=namespace), True
    )["spec"]["containers"][0]
    assert sidecar["resources"] == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "1"}}
    environment = {entry["name"]: entry.get("value") for entry in sidecar["env"]}
    assert (environment["HEADGATE_CONCURRENCY"], environment["HEADGATE_LOG_LEVEL"]) == ("2", "debug")


@pytest.mark.parametrize(
    ("layers", "memory"),
    [
        (({"headgate.dev/proxy-memory": "2Gi"},), {"requests": "2Gi", "limits": "2Gi"}),
        (({"headgate.dev/proxy-memory": "2Gi", "headgate.dev/proxy-memory-limit": "512Mi"},), {"requests": "512Mi", "limits": "512Mi"}),
        (({"headgate.dev/proxy-memory": "2Gi"}, {"headgate.dev/proxy-memory-limit": "3Gi"}), {"requests": "2Gi", "limits": "3Gi"}),
        (({"headgate.dev/proxy-memory": "2Gi"}, {"headgate.dev/proxy-memory-limit": "1500Mi"}), {"requests": "1500Mi", "limits": "1500Mi"}),
        (({"headgate.dev/proxy-memory": "much"},), {"requests": "64Mi", "limits": "1Gi"}),
        (({}, {"headgate.dev/proxy-memory-limit": "32Mi"}, {"headgate.dev/proxy-memory": "64Mi"}), {"requests": "64Mi", "limits": "64Mi"}),
        ((MeshOptions().proxy, {"headgate.dev/proxy-memory-limit": "32Mi"}), {"requests": "32Mi", "limits": "32Mi"}),
        (({}, {"headgate.dev/proxy-memory": "", "headgate.dev/proxy-memory-limit": ""}), {"requests": "64Mi", "limits": "1Gi"}),
    ],
    ids=["above the default", "above its own limit", "in order", "above a stronger limit", "malformed", "repeats a default", "default option", "empty"],
)  # fmt: skip
def test_settings_of_any_source_give_a_pod_that_the_api_server_accepts(
    layers: Sequence[Mapping[str, str]], memory: Mapping[str, str]
) -> None:
    """The annotations of a Namespace may be older than the mesh, and wrong."""
    resources = proxy_settings(*layers).resources
    assert {kind: resources[kind]["memory"] for kind in resources} == memory


@pytest.mark.parametrize("annotation", ["proxy-concurrency", "proxy-log-level", "proxy-memory"])
def test_a_wrong_annotation_of_a_namespace_is_rejected(annotation: str) -> None:
    metadata = {"name": "shop", "annotations": {f"headgate.dev/{annotation}": "much"}}
    (cause,) = namespace_causes({"metadata": metadata})
    assert cause.field == f"metadata.annotations.headgate.dev/{annotation}"
    assert "'much'" in cause.message


def test_the_pull_secrets_of_the_image_are_added_to_those_of_the_pod() -> None:
    options = SidecarOptions(image="headgate:1", xds="headgate:15010", pull_secrets=("registry", "mirror"))
    found = with_transparent_sidecar(web_pod(imagePullSecrets=[{"name": "own"}, {"name": "mirror"}]), options)
    assert found["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "mirror"}, {"name": "registry"}]
    assert gateway_pod(options, {})["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
    assert "imagePullSecrets" not in with_transparent_sidecar(web_pod(), OPTIONS)["spec"]
