"""The schema and the checks of XAuthorizationPolicies (GEP-3779)."""

import pytest
from tests.make.objects import authorization_policy, caller_rule, headgate_keys

from headgate.resources import decode
from headgate.resources.registry import AUTHORIZATION_POLICY

APP = {"app": "web"}
VALID = authorization_policy(
    "p", APP, caller_rule("client", "shop/*", "spiffe://a.example/ns/b/sa/c", ports=[1, 65535])
)
SOURCE = "spec.rules[0].sources[0]"


def source(**fields):
    return {"rules": [{"sources": [fields]}]}


def test_a_policy_of_the_proposal_is_valid():
    assert decode.validate(VALID) == ()
    assert decode.validate(authorization_policy("p", {})) == ()


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"action": "DENY"}, "spec.action", "must be ALLOW, not 'DENY'"),
        ({"targetRefs": []}, "spec.targetRefs", "must have at least 1 entry"),
        ({"targetRefs": [{"kind": "Pod"}]}, "spec.targetRefs[0].selector", "is missing"),
        (
            {"targetRefs": [{"kind": "Service", "selector": {}}]},
            "spec.targetRefs[0].kind",
            "must be Pod, not 'Service'",
        ),
        (
            {"targetRefs": [{"kind": "Pod", "selector": {"matchLabels": {"a b": ""}}}]},
            "spec.targetRefs[0].selector.matchLabels",
            "'a b'",
        ),
        (source(type="SPIFFE"), f"{SOURCE}.spiffe", "must be set if type is SPIFFE, and left out otherwise"),
        (
            source(type="SPIFFE", spiffe="spiffe://a/b", serviceAccount={"name": "a"}),
            f"{SOURCE}.serviceAccount",
            "must be set if type is ServiceAccount, and left out otherwise",
        ),
        (source(type="SPIFFE", spiffe="spiffe://a/*"), f"{SOURCE}.spiffe", "is not a SPIFFE ID"),
        (source(type="SPIFFE", spiffe="spiffe://a"), f"{SOURCE}.spiffe", "is not a SPIFFE ID"),
        (
            source(type="ServiceAccount", serviceAccount={"name": "a*"}),
            f"{SOURCE}.serviceAccount.name",
            "write * for all of the namespace",
        ),
        (
            source(type="ServiceAccount", serviceAccount={"name": "a", "namespace": "*"}),
            f"{SOURCE}.serviceAccount.namespace",
            "'*'",
        ),
        (
            {"rules": [{"networkAttributes": {"ports": []}}]},
            "spec.rules[0].networkAttributes.ports",
            "must have at least 1 entry",
        ),
    ],
)
def test_a_mistake_is_reported_at_its_field(change, field, message):
    causes = decode.validate({**VALID, "spec": {**VALID["spec"], **change}})
    assert [message in cause.message for cause in causes if cause.field.startswith(field)] == [True]


def test_an_unknown_mode_is_a_mistake():
    (cause,) = decode.validate(authorization_policy("p", APP, annotations=headgate_keys(mode="Audit")))
    assert cause.message == "must be audit or enforce, not 'Audit'"


@pytest.mark.parametrize(
    ("rules", "cell"),
    [
        ((), "<none>"),
        (({},), "*"),
        ((caller_rule(),), "none"),
        ((caller_rule("a", "shop/*", ports=[80, 81]), caller_rule("spiffe://a/b")), "a+shop/*:80+81,spiffe://a/b"),
    ],
)
def test_the_table_shows_the_callers_and_ports(rules, cell):
    (column,) = (column for column in AUTHORIZATION_POLICY.columns if column.name == "Allowed")
    assert column.cell(authorization_policy("p", APP, *rules)) == cell
