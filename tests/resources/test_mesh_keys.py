"""Misspelled and misplaced labels and annotations with the prefix `headgate.dev/` are reported."""

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.manifests.apply import APPLIED_DIGEST, APPLIED_FROM
from headgate.resources.authority_status import ROTATE
from headgate.resources.core.service import Service
from headgate.resources.inspect import Severity
from headgate.resources.mesh_keys import ANNOTATIONS, LABELS, useless_keys
from headgate.resources.meta import Metadata
from headgate.resources.registry import SERVICE
from headgate.resources.resilience import ANNOTATIONS as RESILIENCE
from headgate.settings import Settings


@pytest.mark.parametrize(
    ("metadata", "field", "hint"),
    [
        (
            Metadata(labels={"headgate.dev/injekt": "true"}),
            "metadata.labels.headgate.dev/injekt",
            "did you mean headgate.dev/inject?",
        ),
        (
            Metadata(annotations={"headgate.dev/excluded-ports": "9090"}),
            "metadata.annotations.headgate.dev/excluded-ports",
            "did you mean headgate.dev/excluded-inbound-ports?",
        ),
        (
            Metadata(labels={"headgate.dev/sticky": "source"}),
            "metadata.labels.headgate.dev/sticky",
            "write it as an annotation",
        ),
        (
            Metadata(annotations={"headgate.dev/zzz": ""}),
            "metadata.annotations.headgate.dev/zzz",
            "correct its name, or remove it",
        ),
    ],
)
def test_an_unknown_key_is_reported_with_the_nearest_known_key(metadata: Metadata, field: str, hint: str) -> None:
    (cause,) = useless_keys("Service", metadata)
    assert cause.field == field
    assert cause.message.startswith(f"{field.split('.', 2)[2]} has no effect")
    assert cause.message.endswith(hint)


def test_known_keys_and_keys_with_other_prefixes_are_valid() -> None:
    assert {APPLIED_FROM, APPLIED_DIGEST, ROTATE} <= ANNOTATIONS
    foreign = {"app": "web", "example.com/inject": "", "conversion.headgate.dev/weights": "{}"}
    known = Metadata(
        labels=dict.fromkeys(LABELS, "true") | foreign,
        annotations=dict.fromkeys(ANNOTATIONS - {"headgate.dev/mode", "headgate.dev/gateway", *RESILIENCE}, "")
        | foreign,
    )
    assert list(useless_keys("TrafficSplit", known)) == []
    assert list(useless_keys("Service", Metadata(annotations=dict.fromkeys(RESILIENCE, "")))) == []
    proxy = Metadata(annotations={"headgate.dev/proxy-of-gateway": "shop/edge"})
    assert list(useless_keys("Pod", proxy)) == []


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        ("Canary", "mirror", "set spec.analysis.mirror"),
        ("Canary", "sticky", "set spec.stickiness"),
        ("Canary", "no-endpoints", "set spec.noEndpointsPolicy"),
        ("Canary", "allow-self-reference", "set spec.allowSelfReference"),
        ("Canary", "gateway", "set spec.gateway"),
        ("Service", "sticky", "write it on a TrafficSplit"),
        ("HTTPRoute", "no-endpoints", "write it on a TrafficSplit"),
        ("TrafficSplit", "mode", "write it on a XAuthorizationPolicy or TrafficTarget"),
        ("TrafficSplit", "gateway", "write it on a Service"),
        ("TrafficSplit", "retry", "write it on a Service"),
    ],
)
def test_an_annotation_on_a_kind_on_which_it_has_no_effect_is_reported(kind: str, name: str, instead: str) -> None:
    key = f"headgate.dev/{name}"
    (cause,) = useless_keys(kind, Metadata(annotations={key: "x"}))
    assert cause.field == f"metadata.annotations.{key}"
    assert cause.message == f"{key} has no effect on a {kind}; {instead}, or remove it"


def test_an_unknown_annotation_is_a_warning_about_its_object() -> None:
    key = SERVICE.key("default", "web")
    item = Service(metadata=Metadata(name="web", namespace="default", annotations={"headgate.dev/stickky": "source"}))
    findings = compile_mesh(Snapshot(0, {key: item}), Settings()).report.findings
    (found,) = [finding for finding in findings if finding.field == "metadata.annotations.headgate.dev/stickky"]
    assert (found.about, found.reason) == (key, Reason.FIELD_IGNORED)
    assert found.reason.severity is Severity.WARNING
    assert "did you mean headgate.dev/sticky?" in found.message
