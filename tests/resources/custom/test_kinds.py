"""The kinds that CustomResourceDefinitions define, and the checks of their objects."""

from typing import Any

import pytest
from tests.make.definitions import cron_tab, definition, version

from headgate.resources.custom.kinds import with_definitions
from headgate.resources.decode import check
from headgate.resources.registry import BUILT_IN

KINDS = with_definitions([definition()])


def test_a_defined_kind_has_the_names_scope_versions_and_subresources_of_its_definition() -> None:
    first = version("v1beta1", storage=False, subresources={})
    kinds = with_definitions([definition(first, version("v2"), version("v3", storage=False, served=False))])
    kind = kinds.find("stable.example.com", "CronTab")
    assert kind
    assert (kind.plural, kind.names.short, kind.namespaced) == ("crontabs", ("ct",), True)
    assert kind.versions == ("v2", "v1beta1")
    assert (kind.status, kind.subresources, kind.categories) == (True, ("scale",), ("all",))
    assert [column.name for column in kind.columns] == ["Name", "Spec", "Ready", "Age"]


def test_a_scale_with_further_paths_has_no_subresource() -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    kind = with_definitions([definition(version(subresources={"scale": scale}))]).find("stable.example.com", "CronTab")
    assert kind
    assert kind.subresources == ()


@pytest.mark.parametrize("names", [("Gateway", "gateways"), ("HTTPRoute", "httproutes")])
def test_the_definition_of_a_built_in_kind_adds_nothing(names: tuple[str, str]) -> None:
    kind, plural = names
    own = definition(group="gateway.networking.k8s.io", names={"kind": kind, "plural": plural})
    assert with_definitions([own]) is BUILT_IN


def test_defaults_are_set_and_unknown_fields_removed() -> None:
    checked = check(cron_tab(foo=1, port="http"), request=True, kinds=KINDS)
    assert checked.causes == ()
    assert checked.hub
    assert checked.hub["spec"] == {
        "cronSpec": "* * * * *",
        "port": "http",
        "image": "none",
        "replicas": 1,
    }
    assert list(checked.unknown) == ["spec.foo"]


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"cronSpec": "hourly"}, "spec.cronSpec", "does not match"),
        ({"cronSpec": None}, "spec.cronSpec", "is missing"),
        ({"replicas": 11}, "spec.replicas", "must be from 1 to 10"),
        ({"image": 5}, "spec.image", "must be text"),
        ({"tags": ["a", "a"]}, "spec.tags", "the same entry twice"),
    ],
)
def test_an_object_that_breaks_its_schema_is_invalid(spec: dict[str, Any], field: str, message: str) -> None:
    causes = {cause.field: cause.message for cause in check(cron_tab(**spec), request=True, kinds=KINDS).causes}
    assert message in causes[field]


def test_an_object_of_an_undefined_kind_is_a_mistake_of_a_request() -> None:
    assert [cause.field for cause in check(cron_tab(), request=True).causes] == ["kind"]
