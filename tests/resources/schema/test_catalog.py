"""The published definitions are complete and agree with the kinds that headgate serves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.resources.kind import Kind
from headgate.resources.registry import KINDS
from headgate.resources.schema import catalog
from headgate.resources.schema.builders import REF
from headgate.resources.schema.check import check_schema
from headgate.resources.schema.defaults import completed

SERVED = [(kind, version) for kind in KINDS for version in kind.versions]
OWN = [(kind, version) for kind, version in SERVED if kind.is_of_mesh and kind.schema]


def parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield a definition and every object in it."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(inner)


def test_every_ref_refers_to_a_definition() -> None:
    definitions = dict(catalog.definitions())
    references = [part["$ref"] for part in parts(definitions) if isinstance(part.get("$ref"), str)]
    assert {reference.removeprefix(REF) for reference in references} <= definitions.keys()


@pytest.mark.parametrize(("kind", "version"), SERVED, ids=lambda item: getattr(item, "kind", item))
def test_every_kind_has_a_schema_in_every_version(kind: Kind, version: str) -> None:
    schema = catalog.schemas()[kind.group, version, kind.kind]
    assert {"apiVersion", "kind", "metadata"} <= schema["properties"].keys()
    assert ("status" in schema["properties"]) >= kind.status


@pytest.mark.parametrize(("kind", "version"), SERVED, ids=lambda item: getattr(item, "kind", item))
def test_the_keys_of_list_items_are_fields_of_the_items(kind: Kind, version: str) -> None:
    for part in parts(catalog.schemas()[kind.group, version, kind.kind]):
        for key in part.get("x-kubernetes-list-map-keys", ()):
            assert key in part["items"]["properties"]


@pytest.mark.parametrize(("kind", "version"), OWN, ids=lambda item: getattr(item, "kind", item))
def test_every_default_is_a_value_that_its_schema_allows(kind: Kind, version: str) -> None:
    """A default such as port 0, which no user may write, is a code for an absent field."""
    for part in parts(catalog.schemas()[kind.group, version, kind.kind]):
        for schema in part.get("properties", {}).values():
            if "default" in schema:
                default = {"field": completed(schema["default"], schema)}
                assert not check_schema(default, {"type": "object", "properties": {"field": schema}}).causes


def test_an_unknown_kind_has_no_schema() -> None:
    assert ("example.com", "v1", "Widget") not in catalog.schemas()


def test_the_page_of_canaries_lists_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs/tasks/canary.md").read_text()
    properties = catalog.schemas()["headgate.dev", "v1beta1", "Canary"]["properties"]
    fields = [field for part in parts([properties["spec"], properties["status"]]) for field in _fields(part)]
    assert len(fields) > 30
    assert [field for field in fields if not re.search(rf"`(\w+\.)?{field}[`.]", page)] == ["observedGeneration"]


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the fields of an object, but not those of conditions, which all kinds have."""
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and schema.get("type") == "object" and "lastTransitionTime" not in properties:
        yield from properties
