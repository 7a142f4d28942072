"""`headgate inject`: sidecars in manifests, without a cluster."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.decoding import completed
from tests.processes import Ran

from headgate.admission.proxy_users import user_of_manifest
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.names import XDS_ADDRESS
from headgate.plane.snapshot_view import SnapshotView

Inject = Callable[..., Ran]
SPEC: dict[str, Any] = {
    "containers": [{"name": "app", "image": "app:1", "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}}}],
    "initContainers": [{"name": "setup", "image": "app:1"}],
}
TEMPLATE = {"metadata": {"labels": {"app": "web"}, "annotations": {"commit": "1e3"}}, "spec": SPEC}


def workload(kind: str, **metadata: Any) -> dict[str, Any]:
    group = "batch" if kind.endswith("Job") else "apps"
    template = {**TEMPLATE, "spec": {**SPEC, "restartPolicy": "Never"}} if group == "batch" else TEMPLATE
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "web", **metadata}, "spec": spec}


def template_of(obj: Any) -> Any:
    return obj["spec"]["jobTemplate"]["spec"]["template"] if obj["kind"] == "CronJob" else obj["spec"]["template"]


@pytest.fixture
def inject(run: Callable[..., Ran], tmp_path: Path) -> Inject:
    """Return a function that injects the manifests of a text, with options, and returns the result."""

    def call(text: str, *options: str, suffix: str = ".yaml") -> Ran:
        file = tmp_path / f"manifests{suffix}"
        file.write_text(text)
        ran = run("inject", "-f", str(file), *options)
        return Ran(ran.code, ran.out, ran.err.replace(f"{tmp_path}/", ""))

    return call


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
@pytest.mark.parametrize("native", [False, True])
def test_the_pods_of_a_workload_get_what_the_webhook_adds(inject: Inject, kind: str, *, native: bool) -> None:
    ran = inject(
        yaml.safe_dump(workload(kind)),
        *("--image", "mesh:2", "--pull-secrets", "registry", "--otlp-collector", "collector.monitoring:4317"),
        *["--native"] * native,
    )
    found = template_of(yaml.safe_load(ran.out))
    options = SidecarOptions(
        image="mesh:2",
        xds=XDS_ADDRESS,
        pull_secrets=("registry",),
        native=native,
        collector="collector.monitoring:4317",
    )
    written = template_of(workload(kind))
    labels = {**written["metadata"]["labels"], "headgate.dev/inject": "true"}
    metadata = {**written["metadata"], "labels": labels, "namespace": "shop"}
    pod = {"apiVersion": "v1", "kind": "Pod", **written, "metadata": metadata}
    users = itertools.repeat(user_of_manifest(workload(kind)))
    by_webhook = completed(transparent_sidecars("labelled", options, users))(pod, None, SnapshotView(Snapshot()))
    assert found["spec"] == by_webhook["spec"]
    assert found["metadata"]["annotations"] == by_webhook["metadata"]["annotations"]
    assert found["metadata"]["labels"] == {"app": "web"}
    assert ran.err == ""


def test_injected_manifests_are_not_changed_again(inject: Inject) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": SPEC}
    whole = {"apiVersion": "v1", "kind": "List", "items": [pod, workload("Deployment"), {"kind": "Other"}]}
    for output in ("yaml", "json"):
        once = inject(yaml.safe_dump(whole), "-o", output)
        twice = inject(once.out, "-o", output, suffix=f".{output}")
        assert twice.out == once.out
        assert "manifests" in twice.err
        assert "Deployment web stays unchanged: it has a sidecar already" in twice.err


def test_documents_without_pods_keep_their_text(inject: Inject) -> None:
    text = (
        "# the shop\napiVersion: v1\nkind: Service   # a comment\nmetadata: {name: web}\n"
        "--- # Source: chart/web.yaml\n# next\n"
        f"{yaml.safe_dump(workload('Deployment'))}"
        "---\n# nothing here\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: 'b'}"
    )
    ran = inject(text)
    before, after = text.split("apiVersion: apps/v1", maxsplit=1)[0], text[text.index("---\n# nothing") :]
    assert ran.out.startswith(before)
    assert ran.out.endswith(after)
    assert "headgate-sidecar" in ran.out.removeprefix(before).removesuffix(after)


def test_texts_that_kubernetes_would_read_as_numbers_are_quoted(inject: Inject) -> None:
    texts = {
        "a": "1e3",
        "b": "0o17",
        "c": "0x1f",
        "d": "1_000",
        "e": "yes",
        "f": "2020-01-01",
        "g": "1.5e3",
        "h": "add",
    }
    ran = inject(yaml.safe_dump(workload("Deployment", annotations=texts)))
    for name, text in texts.items():
        assert f"{name}: {text}\n" in ran.out or f"{name}: '{text}'\n" in ran.out
        assert (f"'{text}'" in ran.out) is (text != "add")


def test_several_documents_become_one_list_in_json(inject: Inject) -> None:
    text = yaml.safe_dump_all([workload("Deployment"), {"apiVersion": "v1", "kind": "Service"}])
    found = json.loads(inject(text, "-o", "json").out)
    assert [item["kind"] for item in found["items"]] == ["Deployment", "Service"]
    one = json.loads(inject(json.dumps(workload("Job")), "-o", "json", suffix=".json").out)
    assert one["kind"] == "Job"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metadata": {"labels": {"headgate.dev/inject": "false"}}}, 'the pod\'s label headgate.dev/inject is "false"'),
        ({"spec": {**SPEC, "hostNetwork": True}}, "the pod uses the network of its node"),
    ],
)
def test_a_workload_that_gets_no_sidecar_is_reported_with_the_reason(inject: Inject, change: Any, reason: str) -> None:
    text = f"# first line\n{yaml.safe_dump({**workload('Deployment'), 'spec': {'template': {**TEMPLATE, **change}}})}"
    ran = inject(text)
    assert ran.out == text
    assert ran.err.startswith(f"manifests.yaml:3:1: Deployment web stays unchanged: {reason}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [", ":2:1: is not YAML"),
        ("kind: A\n---\nkind: 'a\n", ":4:1: is not YAML"),
        ("- 1\n", ":1:1: is not an object"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: [{image: a}]\n",
            ":5:16: spec.containers[0].name: is missing",
        ),
        (
            (
                "kind: A\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n"
                "    annotations: {headgate.dev/proxy-cpu: fast}\n  spec: {containers: [{name: a}]}\n"
            ),
            ":9:19: items[0].metadata.annotations.headgate.dev/proxy-cpu: 'fast' is not a quantity",
        ),
        (
            (
                "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n"
                "      - {name: a, ports: [{containerPort: 15001}]}\n"
            ),
            ":7:28: spec.template.spec.containers[0].ports[0].containerPort: 15001 is the sidecar's own port",
        ),
    ],
)
def test_a_mistake_is_reported_with_file_and_line_and_no_manifest_is_printed(
    inject: Inject, text: str, message: str
) -> None:
    ran = inject(text)
    assert (ran.code, ran.out) == (1, "")
    assert f"manifests.yaml{message}" in ran.err


def test_a_missing_file_is_wrong_usage(run: Callable[..., Ran]) -> None:
    ran = run("inject", "-f", "missing.yaml")
    assert ran.code == 2
    assert "missing.yaml does not exist" in ran.err


def test_a_wrong_address_of_a_collector_is_rejected(inject: Inject) -> None:
    ran = inject(yaml.safe_dump(workload("Deployment")), "--otlp-collector", "collector.monitoring")
    assert ran.code == 2
    assert "write HOST:PORT without http://" in " ".join(ran.err.split())
