"""Manifests of kustomizations and charts."""

import os

import pytest

from headgate.manifests.files import read
from headgate.manifests.generated import generated

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n"
CHART = "apiVersion: v2\nname: shop\nversion: 0.1.0\n"


def program(directory, name, script):
    """Write a program for the PATH."""
    file = directory / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return the directory of the only programs, and nothing beside the interpreter."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr("sys.executable", str(directory / "python"))
    return directory


def test_a_kustomization_is_built_by_kubectl(tmp_path):
    base, overlay = tmp_path / "base", tmp_path / "overlay"
    base.mkdir()
    overlay.mkdir()
    (base / "map.yaml").write_text(MAP)
    (base / "kustomization.yaml").write_text("resources: [map.yaml]\n")
    (overlay / "kustomization.yaml").write_text("resources: [../base]\nnamePrefix: my-\nnamespace: shop\n")
    found = read([overlay])
    assert found.problems == ()
    assert [str(item.key) for item in found.objects] == ["ConfigMap shop/my-settings"]
    assert found.objects[0].file == str(overlay)


def test_a_mistake_in_a_kustomization_is_a_problem_of_its_directory(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: [missing.yaml]\n")
    found = read([tmp_path])
    (problem,) = found.problems
    assert "is a kustomization, and `kubectl kustomize" in problem.message
    assert "missing.yaml" in problem.message
    assert found.broken == {str(tmp_path)}


def test_a_chart_is_rendered_by_helm(tmp_path, programs):
    chart = tmp_path / "My Shop"
    chart.mkdir()
    (chart / "Chart.yaml").write_text(CHART)
    program(
        programs, "helm", f'test "$1 $2 $4 $5" = "template my-shop --include-crds --skip-tests" && cat <<END\n{MAP}END'
    )
    assert [str(item.key) for item in read([chart]).objects] == ["ConfigMap default/settings"]


def test_hooks_of_an_installation_are_objects_and_those_of_a_deletion_are_not(tmp_path, programs):
    """A Job before the deletion of a release may empty its database."""
    (tmp_path / "Chart.yaml").write_text(CHART)
    hooks = {
        "migrate": "pre-install,pre-upgrade",
        "empty": "pre-delete",
        "undo": "post-rollback",
        "init": "post-install",
    }
    documents = "".join(
        f'---\n# Source: {name}.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  annotations:\n    "helm.sh/hook": {hook}\n'
        for name, hook in hooks.items()
    )
    program(programs, "helm", f"cat <<END\n{documents}END")
    manifests = read([tmp_path])
    assert manifests.problems == ()
    assert sorted(manifest.key.name for manifest in manifests.objects) == ["init", "migrate"]


def test_a_chart_without_helm_names_the_command_to_type(tmp_path, programs):
    (tmp_path / "Chart.yaml").write_text(CHART)
    problem = generated(tmp_path).problem
    assert "is a chart, and this machine has no helm" in problem
    assert f"helm template {tmp_path.name.replace('_', '-')}" in problem


def test_a_program_that_fails_is_a_problem_with_its_last_line(tmp_path, programs):
    (tmp_path / "Chart.yaml").write_text(CHART)
    program(programs, "helm", "echo first >&2; echo Error: no values >&2; exit 1")
    assert generated(tmp_path).problem.endswith("failed: Error: no values")
