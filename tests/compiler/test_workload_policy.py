"""Selection of pods by TLSConfigs, and subject names in certificates (R72 to R78, D17)."""

import pytest
from tests.make.objects import meshed_pod, tls_config
from tests.make.values import compiled, findings, workloads

from headgate.compiler.reasons import Reason
from headgate.model.mutual_tls import TlsMode

FRONT = meshed_pod("front", "10.1.0.1", labels={"role": "frontend", "stage": "production"})
HALF = meshed_pod("half", "10.1.0.2", labels={"role": "frontend"})
WANTED = {"role": "frontend", "stage": "production"}


def targets(result):
    return {name: item.target_tls_mode for name, item in workloads(result).items()}


def test_a_selector_needs_all_of_its_labels():
    """R73."""
    result = compiled(FRONT, HALF, tls_config("tls", WANTED, "foo", "bar"))
    assert targets(result) == {"front": TlsMode.STRICT, "half": TlsMode.PERMISSIVE}
    assert workloads(result)["front"].subjects == ("bar", "foo")
    assert workloads(result)["half"].subjects == ()


def test_a_selector_needs_all_of_its_expressions():
    """Of an invalid TLSConfig they stay active too."""
    expressions = [{"key": label, "operator": "In", "values": [value]} for label, value in WANTED.items()]
    config = tls_config("tls", {})
    for names in ([], ["not a name"]):
        for labels in ({}, {"matchLabels": {}}):
            config["spec"] = {"selector": {**labels, "matchExpressions": expressions}, "subjectNames": names}
            assert targets(compiled(FRONT, HALF, config)) == {"front": TlsMode.STRICT, "half": TlsMode.PERMISSIVE}


def test_an_empty_selector_selects_all_pods_of_its_namespace():
    other = meshed_pod("other", "10.1.0.3", namespace="blue")
    result = compiled(FRONT, HALF, other, tls_config("tls", {}))
    assert targets(result) == {"front": TlsMode.STRICT, "half": TlsMode.STRICT, "other": TlsMode.PERMISSIVE}


@pytest.mark.parametrize(
    ("mtls", "tls_mode"), [("off", TlsMode.PLAIN), ("permissive", TlsMode.PERMISSIVE), ("strict", TlsMode.STRICT)]
)
def test_the_mtls_setting_applies_to_unselected_pods(mtls, tls_mode):
    result = compiled(FRONT, HALF, tls_config("tls", WANTED), mtls=mtls)
    assert targets(result) == {"front": TlsMode.STRICT, "half": tls_mode}


def test_a_pod_gets_the_subject_names_of_all_its_tls_configs():
    """R78."""
    result = compiled(
        FRONT, HALF, tls_config("one", WANTED, "foo", "bar"), tls_config("two", {"role": "frontend"}, "bar")
    )
    assert workloads(result)["front"].subjects == ("bar", "foo")
    assert workloads(result)["half"].subjects == ("bar",)
    (reported,) = findings(result, Reason.SUBJECTS_MERGED)
    assert reported.about.name == "two"
    assert reported.message.startswith("TLSConfig default/one also selects pod default/front")


def test_tls_configs_with_equal_subject_names_are_not_reported():
    assert compiled(FRONT, tls_config("one", WANTED, "foo"), tls_config("two", {}, "foo")).report.findings == ()


def test_an_invalid_tls_config_keeps_its_selector():
    result = compiled(FRONT, tls_config("tls", WANTED, "not a name"))
    assert targets(result) == {"front": TlsMode.STRICT}
    assert workloads(result)["front"].subjects == ()
    assert "its pods use mutual TLS only" in findings(result, Reason.INVALID)[0].message


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"matchLabels": None},
        {"matchLabels": {"a": 1}},
        {"matchLabels": {}, "x": 1},
        {"matchExpressions": [{"key": "a", "operator": "Like"}]},
    ],
)
def test_an_invalid_selector_selects_no_pod(selector):
    broken = tls_config("tls", {})
    broken["spec"]["selector"] = selector
    result = compiled(FRONT, broken)
    assert targets(result) == {"front": TlsMode.PERMISSIVE}
    assert findings(result, Reason.INVALID)


def test_a_tls_config_without_pods_is_reported():
    (reported,) = compiled(FRONT, tls_config("tls", {"role": "backend"})).report.findings
    assert reported.reason is Reason.NO_PODS
