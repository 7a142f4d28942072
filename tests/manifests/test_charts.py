"""What charts contain is read and stored: nothing is lost, and what has no effect is named.

The files of `charts/` are outputs of charts as Helm prints them; `helm create` adds the chart that Helm makes itself.
"""

import json
from pathlib import Path

import pytest
import yaml
from tests.helm import helm

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import explicit_sidecars
from headgate.manifests.apply import apply
from headgate.manifests.files import read
from headgate.manifests.without_effect import left_out, lines
from headgate.settings import DEFAULTS
from headgate.standalone.store.memory import MemoryStore

CHARTS = Path(__file__).parent / "charts"
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


def machine_store() -> MemoryStore:
    """Return a store that admits objects as that of one machine."""
    return MemoryStore(check=object_check(DEFAULTS), admit=admission(explicit_sidecars("all"), {}))


def kinds_in(*paths: Path) -> list[str]:
    """Return the kind of each object of some files, those of lists too, without the undefined ones."""
    written = [obj for path in paths for obj in yaml.load_all(path.read_text(), yaml.CSafeLoader) if obj]
    items = [item for obj in written for item in (obj["items"] if obj["kind"] == "List" else [obj])]
    return sorted(item["kind"] for item in items if item["kind"] not in UNDEFINED)


@pytest.mark.parametrize("path", sorted(CHARTS.glob("*.yaml")), ids=lambda path: path.stem)
async def test_each_object_of_a_chart_is_stored(path: Path) -> None:
    manifests = read([path])
    assert manifests.problems == ()
    applied = await apply(machine_store(), manifests)
    assert applied.problems == ()
    assert sorted(key.kind for key in applied.created) == kinds_in(path)


def test_each_kind_that_is_left_out_is_named() -> None:
    line = left_out(read([CHARTS]))
    assert f"objects of {len(UNDEFINED)} kinds are left out" in line
    assert all(f"1 {kind} (" in line for kind in UNDEFINED)


def test_each_line_about_charts_has_at_most_six_rows_of_a_terminal() -> None:
    assert [line for line in lines(read([CHARTS])) if len(line) > 6 * 80] == []


async def test_the_chart_of_helm_create_is_stored_with_every_option(tmp_path: Path) -> None:
    values, chart = tmp_path / "values.json", tmp_path / "created"
    values.write_text(json.dumps(OPTIONS))
    helm("create", chart)
    output = tmp_path / "output.yaml"
    output.write_text(helm("template", "created", chart, "--values", values))
    manifests = read([output])
    assert manifests.problems == ()
    applied = await apply(machine_store(), manifests)
    assert sorted(key.kind for key in applied.created) == kinds_in(output)
    assert {"Ingress", "HTTPRoute", "HorizontalPodAutoscaler"} < {key.kind for key in applied.created}
