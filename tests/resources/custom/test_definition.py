"""CustomResourceDefinitions: their checks, their defaults and their status."""

from typing import Any

import pytest
from tests.make.definitions import definition, version

from headgate.resources.custom.definition import established, version_order, with_names
from headgate.resources.decode import check

SCHEMA = "spec.versions[0].schema.openAPIV3Schema"


def with_schema(**schema: Any) -> dict[str, Any]:
    return version(schema={"openAPIV3Schema": schema})


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (definition(group="example"), "spec.group", "is not the group of a custom resource"),
        (definition(names={"plural": "Cron Tabs", "kind": "CronTab"}), "spec.names.plural", "is not a resource name"),
        (definition(names={"plural": "crontabs", "kind": "Cron-Tab!"}), "spec.names.kind", "is not the name of a kind"),
        (definition(names={"plural": "tabs", "kind": "CronTab"}), "metadata.name", "tabs.stable.example.com"),
        (definition(scope="Everywhere"), "spec.scope", "must be Namespaced or Cluster"),
        (definition(version(storage=False)), "spec.versions", "exactly one version"),
        (definition(version(), version("v2")), "spec.versions", "exactly one version"),
        (definition(version(), version(storage=False)), "spec.versions", "two versions with the same name"),
        (definition(version("V 1")), "spec.versions[0].name", "must be the name of a version"),
        (definition(version(schema={})), SCHEMA, "is missing"),
        (definition(with_schema(type="string")), f"{SCHEMA}.type", "must be object"),
        (
            definition(with_schema(type="object", properties={"a": {"type": "string", "pattern": "(?=x)"}})),
            f"{SCHEMA}.properties.a.pattern",
            "RE2",
        ),
        (
            definition(with_schema(type="object", properties={"a": {"$ref": "#/x"}})),
            f"{SCHEMA}.properties.a.$ref",
            "is forbidden",
        ),
        (definition(with_schema(type="object", properties={"a": 1})), f"{SCHEMA}.properties.a", "must be a schema"),
        (definition(version(schema={"openAPIV3Schema": deep(61)})), SCHEMA + ".properties.a" * 61, "levels deep"),
    ],
)
def test_a_mistake_in_a_definition_is_named_with_its_field(obj: Any, field: str, message: str) -> None:
    found = {cause.field: cause.message for cause in check(obj).causes}
    assert message in found[field]


def test_a_definition_is_valid() -> None:
    assert check(definition()).causes == ()
    assert check(definition(version(schema={"openAPIV3Schema": deep(60)}))).causes == ()


def test_versions_are_preferred_as_in_kubernetes() -> None:
    names = ["foo", "v1alpha1", "v10", "v1", "v2beta1", "v1beta2", "v11alpha2", "bar"]
    assert sorted(names, key=version_order) == [
        "v10",
        "v1",
        "v2beta1",
        "v1beta2",
        "v11alpha2",
        "v1alpha1",
        "bar",
        "foo",
    ]


def test_the_names_of_a_definition_are_completed() -> None:
    names = with_names(definition())["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("crontab", "CronTabList")


def test_the_status_says_that_the_kind_is_served_and_remembers_stored_versions() -> None:
    old = established(definition(version("v1")), None, "2026-01-01T00:00:00Z")
    new = established(definition(version("v1", storage=False), version("v2")), old, "2026-02-02T00:00:00Z")
    assert {row["type"]: row["status"] for row in new["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert {row["lastTransitionTime"] for row in new["status"]["conditions"]} == {"2026-01-01T00:00:00Z"}
    assert new["status"]["storedVersions"] == ["v1", "v2"]
