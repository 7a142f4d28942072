from typing import Any

import pytest
from tests.make.objects import container, pod

from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.standalone.isolation import MountPoint
from headgate.standalone.pods.environment import (
    content,
    expand,
    named_sources,
    relocate,
    resolve_env,
    runtime_variables,
)
from headgate.standalone.pods.runs import ConfigError


def mount(path: str, source: str) -> MountPoint:
    return MountPoint(path=path, source=source, field="volumeMounts[0]")


def web_pod(**fields: Any) -> Pod:
    """Return a pod with everything that its variables can refer to."""
    metadata: dict[str, Any] = {"namespace": "shop", "labels": {"app": "web"}, "annotations": {"a/b": "c"}}
    return read(pod("web-1", account="web", containers=[container(**fields)], **metadata), Pod)


def env(variables: list[dict[str, Any]], sources: Any = None, **container: Any) -> dict[str, str]:
    made = web_pod(env=variables, **container)
    base = {"PORT": "8080"}
    return resolve_env(made, made.spec.containers[0], address="127.77.128.1", sources=sources or {}, base=base)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(A)", "x-x"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$$$(A)", "$x"),
    ],
)
def test_variables_expand_as_in_kubernetes(text, expected):
    assert expand(text, {"A": "x"}) == expected


def test_a_variable_may_reference_earlier_variables_and_variables_of_the_runtime():
    variables = [{"name": "A", "value": "$(B) $(PORT)"}, {"name": "B", "value": "b"}, {"name": "C", "value": "$(B)"}]
    assert env(variables) == {"A": "$(B) 8080", "B": "b", "C": "b"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web-1"),
        ("metadata.namespace", "shop"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['a/b']", "c"),
        ("metadata.labels['none']", ""),
        ("status.podIP", "127.77.128.1"),
        ("spec.nodeName", "local"),
        ("spec.serviceAccountName", "web"),
    ],
)
def test_a_field_ref_resolves_to_a_field_of_the_pod(path, expected):
    assert env([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]) == {"A": expected}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"fieldRef": {"fieldPath": "spec.nonsense"}}, r"env\[0\] \(A\): unsupported fieldPath 'spec.nonsense'"),
        ({"configMapKeyRef": {"name": "m", "key": "x"}}, "ConfigMap 'm' has no key 'x'; add it or set optional: true"),
        ({"secretKeyRef": {"name": "s", "key": "x"}}, "there is no Secret 's'"),
        ({"resourceFieldRef": {"resource": "limits.disk"}}, "use limits.cpu, limits.memory"),
        ({"fileKeyRef": {"key": "x"}}, "use one of them"),
    ],
)
def test_the_error_names_the_missing_object_or_key(source, message):
    with pytest.raises(ConfigError, match=message):
        env([{"name": "A", "valueFrom": source}], {("ConfigMap", "m"): {}})


def test_an_optional_object_or_key_may_be_missing():
    source = {"configMapKeyRef": {"name": "m", "key": "x", "optional": True}}
    whole = [{"secretRef": {"name": "s", "optional": True}}]
    assert env([{"name": "A", "valueFrom": source}], envFrom=whole) == {}


def test_variables_contain_each_named_port_and_the_first_port():
    made = web_pod(ports=[{"name": "web-ui", "containerPort": 8080}, {"name": "admin", "containerPort": 9090}])
    variables = runtime_variables(made, made.spec.containers[0], "127.77.128.1")
    assert {name: variables[name] for name in ("PORT", "PORT_WEB_UI", "PORT_ADMIN")} == {
        "PORT": "8080",
        "PORT_WEB_UI": "8080",
        "PORT_ADMIN": "9090",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/app", "/real"),
        ("/app/x", "/real/x"),
        ("/application", "/application"),
        ("--config=/app/x", "--config=/real/x"),
        ("/app/deep/x", "/deep/x"),
        ("/other=/app/x", "/other=/app/x"),
        ("app", "app"),
    ],
)
def test_mount_paths_are_replaced_by_the_paths_of_their_content(text, expected):
    assert relocate(text, [mount("/app/", "/real"), mount("/app/deep", "/deep")]) == expected


def test_secrets_are_decoded_and_config_maps_are_plain_text():
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "aGk="}, "stringData": {"b": "plain"}}
    assert content(secret) == {"a": b"hi", "b": b"plain"}
    config = {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "hi"}, "binaryData": {"b": "AAE="}}
    assert content(config) == {"a": b"hi", "b": b"\0\1"}
    with pytest.raises(ConfigError, match="Secret 's' has a value that is not base64"):
        content({"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "!"}})


def test_all_config_maps_and_secrets_that_a_pod_uses_are_found():
    made = web_pod(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}],
        envFrom=[{"configMapRef": {"name": "m1"}}, {"secretRef": {"name": "s2"}}],
    )
    assert named_sources(made) == {("Secret", "s1"), ("ConfigMap", "m1"), ("Secret", "s2")}
