"""What charts contain: the outputs of ten charts as Helm prints them, and that of the chart that `helm create` makes."""

import json
from pathlib import Path
from typing import Any

import yaml
from tests.helm import helm

CHARTS = Path(__file__).parent / "manifests/charts"
UNDEFINED = {
    "Certificate",
    "ExternalSecret",
    "PodMonitor",
    "ScaledObject",
    "SecurityContextConstraints",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
}
"""The kinds of `charts/` that no CustomResourceDefinition of theirs defines: a cluster rejects them too."""
OPTIONS = {
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "podSecurityContext": {"fsGroup": 2000},
    "securityContext": {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True, "runAsUser": 1000},
    "ingress": {"enabled": True, "className": "nginx", "tls": [{"secretName": "tls", "hosts": ["a.example"]}]},
    "httpRoute": {"enabled": True},
    "resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}},
    "autoscaling": {"enabled": True, "targetMemoryUtilizationPercentage": 80},
    "volumes": [{"name": "foo", "secret": {"secretName": "mysecret", "optional": True}}],
    "volumeMounts": [{"name": "foo", "mountPath": "/etc/foo", "readOnly": True}],
    "nodeSelector": {"disktype": "ssd"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
}
"""Values that turn on every option of the chart of `helm create`."""


def created_chart(directory: Path) -> Path:
    """Write the output of the chart of `helm create`, with every option on, into a directory; return its path."""
    values, chart = directory / "values.json", directory / "created"
    values.write_text(json.dumps(OPTIONS))
    helm("create", chart)
    output = directory / "created.yaml"
    output.write_text(helm("template", "created", chart, "--values", values))
    return output


def kinds_in(*paths: Path) -> list[str]:
    """Return the kind of each object of some files, those of lists too, without the undefined ones."""
    return sorted(obj["kind"] for path in paths for obj in objects_in(path))


def objects_in(path: Path) -> list[Any]:
    """Return the objects of a file, those of lists too, without those of undefined kinds."""
    written = [obj for obj in yaml.load_all(path.read_text(), yaml.CSafeLoader) if obj]
    items = (item for obj in written for item in (obj["items"] if obj["kind"] == "List" else [obj]))
    return [item for item in items if item["kind"] not in UNDEFINED]
