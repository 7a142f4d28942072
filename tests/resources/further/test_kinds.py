"""The kinds that headgate stores without effect."""

import json

from headgate.resources.decode import check
from headgate.resources.further.kinds import FURTHER_KINDS, further_definitions
from headgate.resources.registry import BUILT_IN, KINDS
from headgate.resources.schema.catalog import names


def test_headgate_works_with_no_further_kind() -> None:
    own = {(kind.group, kind.kind) for kind in KINDS}
    assert own.isdisjoint((kind.group, kind.kind) for kind in FURTHER_KINDS)
    short = [name for kind in BUILT_IN.kinds for name in kind.names.short]
    assert len(set(short)) == len(short)


def test_each_version_of_a_further_kind_has_a_schema() -> None:
    served = {(group, version, kind.kind) for kind in FURTHER_KINDS for group, version in kind.served_versions}
    assert served <= names().keys()


def test_the_schemas_have_no_prose() -> None:
    assert '"description":"' not in json.dumps(further_definitions(), separators=(",", ":"))


def test_an_object_is_checked_by_its_schema() -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    assert check({**budget, "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}).causes == ()
    causes = {cause.field for cause in check({**budget, "spec": {"minAvailable": [], "selector": "a=b"}}).causes}
    assert causes == {"spec.minAvailable", "spec.selector"}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {},
    }
    assert {cause.field for cause in check(scaler).causes} == {"spec.scaleTargetRef", "spec.maxReplicas"}
