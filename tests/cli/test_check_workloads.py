"""Findings of `headgate check` on workloads in files: programs, selectors and misspelled kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.make import objects
from tests.make.objects import Object, container
from typer.testing import CliRunner

from headgate.cli.app import app

Run = Callable[..., Any]


def program_deployment(name: str, *, labels: dict[str, str] | None = None, **fields: Any) -> Object:
    """Return a Deployment of a program, which is Python unless `fields` say so."""
    main = container("main", **{"command": ["python3"], **fields})
    return objects.deployment(name, main, labels=labels, namespace="")


def write(path: Path, *objects: Any) -> None:
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))


def findings(run: Run, *arguments: str) -> list[str]:
    return [line.partition(": ")[2] for line in run("check", *arguments).out.splitlines()]


def test_the_finding_for_a_selector_without_pods_lists_the_labels_of_existing_pods(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", objects.service("web", 80, selector={"app": "wbe"}), program_deployment("web"))
    (found,) = findings(run, "a.yaml")
    assert found == (
        "warning SelectsNoPods Service default/web: spec.selector: no pod of these files in namespace default has the "
        "labels app=wbe; pods of this namespace have app=web"
    )


def test_a_selector_is_checked_only_when_its_namespace_has_pods(run: Run, tmp_path: Path) -> None:
    """R22. Services may be written and checked before their workloads."""
    write(
        tmp_path / "a.yaml",
        objects.namespace("shop"),
        objects.service("web", 80, namespace="shop", selector={"app": "web"}),
        program_deployment("other"),
    )
    assert findings(run, "a.yaml") == []


def test_a_namespace_that_no_file_creates_is_a_warning(run: Run, tmp_path: Path) -> None:
    """kubectl rejects objects of a namespace that does not exist, and so does `headgate up`."""
    write(
        tmp_path / "a.yaml",
        *(objects.config_map(name, namespace="shop") for name in ("a", "b")),
        objects.config_map("c"),
    )
    (finding,) = findings(run, "a.yaml")
    assert finding == (
        "warning NamespaceMissing ConfigMap shop/a: metadata.namespace: no file creates the namespace shop: `headgate up` "
        "creates it, and kubectl rejects its objects until it exists; add a Namespace, or run `kubectl create namespace shop`"
    )
    write(tmp_path / "b.yaml", objects.namespace("shop"))
    assert findings(run, "a.yaml", "b.yaml") == []


def test_a_container_without_a_command_is_a_warning(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", program_deployment("web", command=[], image="nginx"))
    (found,) = findings(run, "a.yaml")
    assert found.startswith(
        "warning NoCommand Deployment default/web: spec.template.spec.containers[0]: container main has no command"
    )


@pytest.mark.parametrize("program", ["pyhton3", "/usr/bin/pyhton3", "./pyhton3"])
def test_a_program_missing_on_this_machine_is_a_warning(run: Run, tmp_path: Path, program: str) -> None:
    write(tmp_path / "a.yaml", program_deployment("web", command=[program]))
    (found,) = findings(run, "a.yaml")
    assert found.startswith("warning CommandNotFound Deployment default/web: spec.template.spec.containers[0].command:")
    assert f"program {program!r} not found on this machine" in found


def test_a_program_that_is_not_executable_is_a_warning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "serve").write_text("#!/bin/sh\n")
    write(tmp_path / "a.yaml", program_deployment("web", command=["./serve"]))
    (found,) = findings(run, "a.yaml")
    assert found.endswith("'./serve' is not executable; set its mode with chmod +x")


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["$(PROGRAM)"]},
        {"command": ["/scripts/serve"], "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}]},
        {"command": ["serve"], "env": [{"name": "PATH", "value": "/opt/app"}]},
    ],
)
def test_a_program_that_depends_on_the_running_pod_is_not_checked(
    run: Run, tmp_path: Path, container: dict[str, Any]
) -> None:
    write(tmp_path / "a.yaml", program_deployment("web", **container))
    assert findings(run, "a.yaml") == []


def test_configmap_and_secret_values_of_a_wrong_type_are_errors(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  port: 8080\n"
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\ndata:\n  key: hunter2!\n"
    )
    assert run("check", "a.yaml").out.splitlines() == [
        "a.yaml:5: error Invalid data.port: must be text, not a whole number; write it with quotes",
        "a.yaml:11: error Invalid data.key: must be base64",
    ]


def test_a_misspelled_kind_is_an_error_with_a_suggestion(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: split.smi-spec.io/v1alpha4\nkind: TraficSplit\nmetadata: {name: a}\n")
    (line,) = run("check", "a.yaml").out.splitlines()
    assert line == (
        "a.yaml:2: error Invalid kind: 'TraficSplit' is not a kind that headgate knows; did you mean TrafficSplit?"
    )


CRON_JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: "@daily"
  jobTemplate:
    spec:
      template:
        metadata: {labels: {app: report}}
        spec: {restartPolicy: Never, containers: [{name: report, image: report}]}
---
apiVersion: v1
kind: Service
metadata: {name: report}
spec: {selector: {app: report}, ports: [{port: 80}]}
"""


def test_the_template_of_a_cron_job_is_checked_and_selected_like_that_of_a_deployment(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CRON_JOB)
    (line,) = run("check", "a.yaml").out.splitlines()
    field = "spec.jobTemplate.spec.template.spec.containers[0]"
    assert f"CronJob default/report: {field}: container report has no command" in line


APPLICATION = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {pods: 4}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: web}
"""


def test_kinds_without_effect_are_notes_and_network_policies_are_warnings(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(APPLICATION)
    ran = run("check", "a.yaml")
    policy, left_out, stored = ran.out.splitlines()
    assert policy.startswith(
        "a.yaml:8: warning KindWithoutEffect NetworkPolicy default/web: spec: NetworkPolicies have no effect"
    )
    assert left_out.startswith("note KindNotDefined 1 object is left out")
    assert stored == (
        "note KindWithoutEffect 2 objects of 2 kinds are stored without effect: 1 NetworkPolicy, 1 ResourceQuota"
    )
    assert ran.code == 0


def test_files_with_objects_of_another_mesh_alone_are_checked(run: Run, tmp_path: Path) -> None:
    """As `kubectl get -o yaml` writes them."""
    retry = "{apiVersion: policy.openservicemesh.io/v1alpha1, kind: Retry, metadata: {name: a}}"
    (tmp_path / "osm.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n  - {retry}\n")
    ran = run("check", "osm.yaml")
    assert ran.code == 0
    assert "1 object of the kind Retry (policy.openservicemesh.io/v1alpha1) has no effect" in ran.out
    assert "its retries do not happen" in ran.out


def test_each_kind_of_another_mesh_is_a_warning_and_its_injection_key_a_note(run: Run, tmp_path: Path) -> None:
    policies = "apiVersion: policy.openservicemesh.io/v1alpha1\nkind: Egress\nmetadata: {{name: {}}}\n---\n"
    label = "openservicemesh.io/monitored-by"
    shop = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: {{{label}: osm}}\n"
    (tmp_path / "a.yaml").write_text(policies.format("a") + policies.format("b") + shop)
    ran = run("check", "a.yaml")
    egress, key = ran.out.splitlines()
    assert egress.startswith(
        "a.yaml:1: warning KindWithoutEffect 2 objects of the kind Egress (policy.openservicemesh.io"
    )
    assert key.startswith(
        f"a.yaml:13: note FieldIgnored Namespace shop: metadata.labels.{label}: headgate does not read"
    )
    assert ran.code == 0
    assert run("check", "--strict", "a.yaml").code == 1


def test_check_reads_standard_input_like_a_file(tmp_path: Path) -> None:
    for text in (
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports: [{port: 99999}]\n",
        '{"apiVersion": "v1",\n"kind": "Service",\n"metadata": {"name": "web"},\n"spec": {\n"ports": [{"port": 99999}]}}',
    ):
        ended = CliRunner().invoke(app, ["check", "-"], input=text, prog_name="headgate")
        assert ended.exit_code == 1
        assert ended.stdout.startswith("<stdin>:5: error Invalid spec.ports[0].port:")


def test_empty_standard_input_is_an_error(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["check", "-"], input="", prog_name="headgate")
    assert ended.exit_code == 1
    assert "<stdin>:1: error Invalid is empty" in ended.stdout
