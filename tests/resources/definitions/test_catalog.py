"""The published definitions are complete and agree with the kinds that headgate serves."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.resources.definitions import catalog
from headgate.resources.definitions.schema_builders import REF
from headgate.resources.registry import KINDS, Kind

SERVED = [(kind, version) for kind in KINDS for version in kind.versions]


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


def test_an_unknown_kind_has_no_schema() -> None:
    assert ("example.com", "v1", "Widget") not in catalog.schemas()
