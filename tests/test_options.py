"""The options of the mesh."""

import ast
from pathlib import Path

import pytest

from headgate.options import OPTIONS, MeshOptions, given_options, parse_metrics_source, pod_arguments

SOURCE = Path(__file__).parents[1] / "src/headgate"
READERS = {
    "custom_metrics": {"api/computed_groups.py": "the group that it registers"},
    "external_metrics": {"api/computed_groups.py": "the group that it registers"},
    "node_agent": {
        "admission/sidecar_containers.py": "the init container of a pod",
        "kubernetes/install/manifests.py": "the agent's DaemonSet, and the label of its namespace",
        "kubernetes/options.py": "the options of sidecars",
    },
}
"""What each module does with an option that adds a part to the installation; nothing else only passes it on."""


@pytest.mark.parametrize("field", READERS)
def test_an_option_is_only_read_where_it_has_an_effect(field: str) -> None:
    def names_field(node: ast.AST) -> bool:
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=name) | ast.keyword(arg=name):
                return name == field
        return False

    texts = {path: path.read_text() for path in SOURCE.rglob("*.py")}  # parsing all would take seconds
    paths = [path for path, text in texts.items() if field in text and any(map(names_field, ast.walk(ast.parse(text))))]
    assert {path.relative_to(SOURCE).as_posix() for path in paths} == READERS[field].keys()


@pytest.mark.parametrize("field", OPTIONS)
def test_the_text_of_a_default_describes_the_default(field: str) -> None:
    declared = OPTIONS[field]
    read = bool if declared.type is bool else declared.option.read
    assert read(declared.text) == declared.default == getattr(MeshOptions(), field)


def test_a_prometheus_as_the_source_needs_series_with_pods() -> None:
    source = parse_metrics_source("prometheus=http://127.0.0.1:9090")
    assert MeshOptions(metrics_source=source).series_by == "pod"
    assert [MeshOptions(metrics_by=by).series_by for by in ("workload", "pod")] == ["workload", "pod"]


def test_the_compiler_gets_the_settings_among_the_options_and_those_of_the_host() -> None:
    settings = MeshOptions(mtls="strict", otlp_traces="127.0.0.1:4317").settings(gateway_pods=True)
    assert (settings.mtls, settings.otlp_traces, settings.gateway_pods) == ("strict", "127.0.0.1:4317", True)


@pytest.mark.parametrize("text", ["prometheus", "prometheus=", "prometheus=host:9090", "graphite=http://a"])
def test_an_invalid_source_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="prometheus=http://HOST:PORT"):
        parse_metrics_source(text)


def test_a_source_with_a_password_in_its_url_is_rejected() -> None:
    with pytest.raises(ValueError, match="other users") as caught:
        parse_metrics_source("prometheus=http://user:sesame@host:9090")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {
            "mtls": "strict",
            "namespaces": "shop,pay",
            "node_agent": "True",
            "aggregated_apis": "",
            "trace_sampling": "0.5",
        },
    ],
)
def test_the_arguments_of_the_control_plane_have_all_of_its_options(texts: dict[str, str]) -> None:
    given = given_options(pod_arguments(texts))
    assert {field: text for field, text in given.texts.items() if text != OPTIONS[field].text} == texts
    assert (given.mesh.mtls == "strict", given.mesh.node_agent, given.mesh.aggregated_apis) == (
        ("mtls" in texts, True, False) if texts else (False, False, True)
    )


@pytest.mark.parametrize("argument", ["--speed=fast", "--fast", "--mtls=sometimes"])
def test_an_option_and_a_value_of_another_version_are_named(argument: str) -> None:
    with pytest.raises(ValueError, match=f"this version has no .*{argument.rpartition('=')[2]}"):
        given_options([*pod_arguments({}), argument])


def test_unused_options_of_an_earlier_version_are_ignored() -> None:
    assert given_options([*pod_arguments({}), "--speed=", "--no-fast"]).mesh == MeshOptions()
