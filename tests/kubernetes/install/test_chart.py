"""The Helm chart: Helm renders the objects that `headgate install` applies, and rejects wrong values."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helm import CHART, helm

from headgate.cli.mesh_options import IMAGE
from headgate.kubernetes.install.custom_resources import without_rules
from headgate.kubernetes.install.manifests import MANAGED_BY, Values, manifests, revision_manifests
from headgate.resources.schema.builders import RULES

NAMESPACE = ("--namespace", "headgate-system")
DIGEST = f"sha256:{'0123' * 16}"
RESOURCES = {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
TOLERATIONS = [{"key": "control-plane", "operator": "Exists", "effect": "NoSchedule"}]
AFFINITY = {"podAntiAffinity": None, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
POD_VALUES = {
    "nodeSelector": {"kubernetes.io/arch": "amd64", "pool": "true"},
    "priorityClassName": "",
    "tolerations": TOLERATIONS,
}
SAME: dict[str, tuple[Mapping[str, Any], Values]] = {
    "defaults": ({}, Values(image=IMAGE)),
    "options": (
        {
            "replicas": 3,
            "sidecars": "all",
            "mtls": "strict",
            "trustDomain": "mesh.example",
            "access": "deny",
            "outbound": "refuse",
        },
        Values(
            image=IMAGE,
            replicas=3,
            options={
                "sidecars": "all",
                "mtls": "strict",
                "trust_domain": "mesh.example",
                "access": "deny",
                "outbound": "refuse",
            },
        ),
    ),
    "pull secrets": (
        {"imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}]},
        Values(image=IMAGE, options={"pull_secrets": "registry,mirror"}),
    ),
    "cert-manager": (
        {"certManager": {"issuer": "ClusterIssuer/mesh"}},
        Values(image=IMAGE, options={"cert_manager_issuer": "ClusterIssuer/mesh"}),
    ),
    "proxies": (
        {
            "proxy": {
                "cpu": 0.5,
                "memory": "96Mi",
                "cpuLimit": 2,
                "memoryLimit": "",
                "concurrency": 2,
                "logLevel": "info",
            }
        },
        Values(
            image=IMAGE,
            options={
                "proxy_cpu": "0.5",
                "proxy_memory": "96Mi",
                "proxy_cpu_limit": "2",
                "proxy_memory_limit": "",
                "proxy_concurrency": "2",
                "proxy_log_level": "info",
            },
        ),
    ),
    "namespaces": ({"namespaces": ["shop", "123"]}, Values(image=IMAGE, options={"namespaces": "shop,123"})),
    "the namespace of Events": ({"namespaces": ["default"]}, Values(image=IMAGE, options={"namespaces": "default"})),
    "no APIs": ({"aggregatedApis": False}, Values(image=IMAGE, options={"aggregated_apis": ""})),
    "node agent": (
        {"nodeAgent": {"enabled": True}, "imagePullSecrets": [{"name": "registry"}]},
        Values(image=IMAGE, options={"node_agent": "true", "pull_secrets": "registry"}),
    ),
    "metrics for autoscalers": (
        {"customMetrics": {"enabled": True}, "externalMetrics": {"enabled": True}},
        Values(image=IMAGE, options={"custom_metrics": "true", "external_metrics": "true"}),
    ),
    "telemetry": (
        {
            "metrics": {"by": "pod", "source": "prometheus=https://prometheus.monitoring:9090/base"},
            "otlpCollector": "collector.monitoring:4317",
            "traces": {"collector": "collector.monitoring:4318", "sampling": 0.5},
            "nginxImage": "registry.example/headgate-nginx:1",
        },
        Values(
            image=IMAGE,
            options={
                "metrics_by": "pod",
                "metrics_source": "prometheus=https://prometheus.monitoring:9090/base",
                "otlp_collector": "collector.monitoring:4317",
                "otlp_traces": "collector.monitoring:4318",
                "trace_sampling": "0.5",
                "nginx_image": "registry.example/headgate-nginx:1",
            },
        ),
    ),
    "a collector at an address": (
        {"otlpCollector": "[fd00::1]:4317"},
        Values(image=IMAGE, options={"otlp_collector": "[fd00::1]:4317"}),
    ),
    "tag": (
        {"image": {"repository": "registry.example:5000/headgate", "tag": "2.0", "pullPolicy": "Always"}},
        Values(image="registry.example:5000/headgate:2.0", pull_policy="Always"),
    ),
    "digest": (
        {"image": {"repository": "registry.example/headgate", "tag": "2.0", "digest": DIGEST}},
        Values(image=f"registry.example/headgate@{DIGEST}"),
    ),
}
OF_THE_CHART_ONLY: Mapping[str, Any] = {
    **POD_VALUES,
    "affinity": AFFINITY,
    "podAnnotations": {"example.com/scrape": "true"},
    "resources": RESOURCES,
    "podDisruptionBudget": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
WRONG: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("/image/repository", {"image": {"repository": "example.com/headgate:1@sha256:0"}}),
    ("/image/tag", {"image": {"tag": "a b"}}),
    ("/image/tag", {"image": {"tag": 1.5}}),
    ("/image/digest", {"image": {"digest": "sha256:12"}}),
    ("/image/pullPolicy", {"image": {"pullPolicy": "Sometimes"}}),
    ("/imagePullSecrets/0", {"imagePullSecrets": ["registry"]}),
    ("/revision", {"revision": "Next"}),
    ("/revision", {"revision": "a" * 41}),
    ("/replicas", {"replicas": 0}),
    ("/namespaces/0", {"namespaces": ["kube-system"]}),
    ("/namespaces/0", {"namespaces": ["a b"]}),
    ("/replicas", {"replicas": "2"}),
    ("/sidecars", {"sidecars": "labeled"}),
    ("/mtls", {"mtls": "on"}),
    ("/access", {"access": "all"}),
    ("/outbound", {"outbound": "deny"}),
    ("/trustDomain", {"trustDomain": "Mesh: example"}),
    ("/resources", {"resources": {"request": {}}}),
    ("/podAnnotations/a", {"podAnnotations": {"a": True}}),
    ("/priorityClassName", {"priorityClassName": 7}),
    ("/nodeSelector/pool", {"nodeSelector": {"pool": True}}),
    ("/tolerations", {"tolerations": {}}),
    ("/affinity", {"affinity": []}),
    ("/podDisruptionBudget/enabled", {"podDisruptionBudget": {"enabled": "yes"}}),
    ("/certManager/issuer", {"certManager": {"issuer": "mesh"}}),
    ("/customMetrics/enabled", {"customMetrics": {"enabled": "yes"}}),
    ("/metrics/by", {"metrics": {"by": "service"}}),
    ("/metrics/source", {"metrics": {"source": "http://prometheus:9090"}}),
    ("/metrics/source", {"metrics": {"source": "prometheus=http://me:secret@prometheus:9090"}}),
    ("/otlpCollector", {"otlpCollector": "http://collector.monitoring:4317"}),
    ("/otlpCollector", {"otlpCollector": "collector.monitoring"}),
    ("/traces/collector", {"traces": {"collector": "http://collector.monitoring:4317"}}),
    ("/traces/sampling", {"traces": {"sampling": "half"}}),
    ("/traces/sampling", {"traces": {"sampling": 101}}),
    ("/nginxImage", {"nginxImage": "two words"}),
    ("/networkPolicy", {"networkPolicy": {"enable": True}}),
    ("'replica'", {"replica": 2}),
)

REVISIONS: Mapping[str, tuple[Mapping[str, Any], Values]] = {
    "defaults": ({"revision": "next"}, Values(image=IMAGE)),
    "a number": ({"revision": "7", "replicas": 1}, Values(image=IMAGE, replicas=1)),
    "namespaces and another image": (
        {
            "revision": "next",
            "namespaces": ["shop", "pay"],
            "image": {"tag": "2.0", "repository": "registry.example/headgate"},
            "imagePullSecrets": [{"name": "registry"}],
        },
        Values(image="registry.example/headgate:2.0", options={"namespaces": "shop,pay", "pull_secrets": "registry"}),
    ),
}
"""Values of a revision and what `headgate install --revision` applies with the same options."""

Objects = dict[tuple[str, str, str], Any]


def rendered(tmp_path: Path, values: Mapping[str, Any], *options: str, chart: Path = CHART) -> Objects:
    file = tmp_path / "own-values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    text = helm("template", "headgate", chart, *NAMESPACE, "-f", file, *options)
    return by_name(item for item in yaml.load_all(text, yaml.CSafeLoader) if item)


def applied(values: Values) -> Objects:
    """Return the objects of `headgate install` as the chart has them."""
    rendered = by_helm(manifests(values))
    del rendered["Namespace", "", "headgate-system"]  # `helm install --create-namespace` creates it
    for (kind, _, _), obj in rendered.items():
        if kind == "CustomResourceDefinition":
            obj["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    return rendered


def by_helm(objects: Sequence[Any]) -> Objects:
    """Return objects by name, with the label of Helm instead of that of `headgate install`."""
    text = json.dumps(objects)
    return by_name(json.loads(text.replace(f'"{MANAGED_BY}": "headgate"', f'"{MANAGED_BY}": "Helm"')))


def by_name(objects: Any) -> Objects:
    found = {}
    for item in objects:
        key = item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]
        assert key not in found
        found[key] = item
    return found


def assert_same(chart: Objects, expected: Objects) -> None:
    assert sorted(chart) == sorted(expected)
    for key, obj in expected.items():
        assert chart[key] == obj, key


@pytest.mark.parametrize("case", SAME)
def test_the_chart_has_the_objects_of_headgate_install(tmp_path: Path, case: str) -> None:
    values, same = SAME[case]
    assert_same(rendered(tmp_path, values), applied(same))


@pytest.mark.parametrize("case", REVISIONS)
def test_the_chart_of_a_revision_has_the_objects_of_headgate_install_revision(tmp_path: Path, case: str) -> None:
    values, same = REVISIONS[case]
    assert_same(rendered(tmp_path, values), by_helm(revision_manifests(same, values["revision"])))


def test_values_of_the_chart_only_change_what_they_name(tmp_path: Path) -> None:
    expected = applied(Values(image=IMAGE))
    del expected["PodDisruptionBudget", "headgate-system", "headgate"]
    del expected["NetworkPolicy", "headgate-system", "headgate"]
    template = expected["Deployment", "headgate-system", "headgate"]["spec"]["template"]
    template["metadata"]["annotations"] = OF_THE_CHART_ONLY["podAnnotations"]
    template["spec"] |= {**POD_VALUES, "affinity": {"nodeAffinity": AFFINITY["nodeAffinity"]}}
    template["spec"]["containers"][0]["resources"] = RESOURCES
    assert_same(rendered(tmp_path, OF_THE_CHART_ONLY), expected)


def test_the_chart_uses_the_disruption_budgets_of_old_clusters_and_omits_the_rules_of_definitions(
    tmp_path: Path,
) -> None:
    old = rendered(tmp_path, {}, "--kube-version", "1.20.2")
    expected = applied(Values(image=IMAGE, budget_version="policy/v1beta1"))
    assert RULES in str(expected)
    assert_same(old, without_rules(expected))


@pytest.mark.parametrize("version", ["1.25.0", "1.31.5-gke.1068000"])
def test_the_chart_has_the_rules_of_definitions_for_newer_clusters(tmp_path: Path, version: str) -> None:
    assert_same(rendered(tmp_path, {}, "--kube-version", version), applied(Values(image=IMAGE)))


def test_the_chart_can_be_the_part_of_another_chart(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts/headgate")
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 0.1.0\n")
    values = {"headgate": {"replicas": 3}, "global": {"team": "mesh"}}
    assert_same(rendered(tmp_path, values, chart=parent), applied(Values(image=IMAGE, replicas=3)))


def test_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, *NAMESPACE)


@pytest.mark.parametrize(("where", "values"), WRONG, ids=[str(values) for _, values in WRONG])
def test_a_wrong_value_is_rejected_with_its_name(tmp_path: Path, where: str, values: Mapping[str, Any]) -> None:
    file = tmp_path / "own-values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    message = helm("template", "headgate", CHART, *NAMESPACE, "-f", file, fails=True)
    assert "don't meet the specifications of the schema" in message
    assert where in message


def test_another_namespace_is_rejected_with_the_right_one() -> None:
    message = helm("template", "headgate", CHART, "--namespace", "mesh", fails=True)
    assert "headgate runs in the namespace headgate-system, not in mesh; add: --namespace headgate-system" in message


def test_clusters_older_than_the_oldest_supported_version_are_rejected() -> None:
    message = helm("template", "headgate", CHART, *NAMESPACE, "--kube-version", "1.19.16", fails=True)
    assert "chart requires kubeVersion: >=1.20.0-0" in message


@pytest.mark.parametrize(
    ("sidecars", "next_step"),
    [("labelled", "kubectl label namespace NAMESPACE headgate.dev/inject=true"), ("none", "No pod gets a sidecar")],
)
def test_the_notes_name_the_next_step(sidecars: str, next_step: str) -> None:
    dry = ("install", "headgate", CHART, *NAMESPACE, "--dry-run=client", "--set", f"sidecars={sidecars}")
    assert next_step in helm(*dry)


def test_each_value_is_tested_with_another_value_than_its_default() -> None:
    defaults = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    groups = {name.partition(".")[0] for name in defaults}
    tested = [OF_THE_CHART_ONLY, *(values for values, _ in (*SAME.values(), *REVISIONS.values()))]
    changed = {name for values in tested for name, value in leaves(values) if defaults.get(name) != value}
    assert groups <= {name.partition(".")[0] for name in changed}
    image = {f"image.{name}" for name in ("repository", "tag", "digest", "pullPolicy")}
    assert image <= changed


def leaves(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from leaves(value, f"{path}.{name}" if path else name)
    else:
        yield path, values
