"""A field of a status is declared once, by a type of the kind, and headgate writes each of them (`resources.status`)."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from headgate.resources import status
from headgate.resources.columns import with_summary
from headgate.resources.registry import KINDS
from headgate.resources.schema.catalog import schema_of
from headgate.resources.schema.declared import StatusPart

SOURCE = Path(status.__file__).parents[1]
OF_COLUMNS = "summary"
"""The field whose fields are columns: `with_summary` writes it."""


def descendants(shape: type[StatusPart]) -> Iterator[type[StatusPart]]:
    for child in shape.__subclasses__():
        yield child
        yield from descendants(child)


def written() -> dict[str, set[str]]:
    """Return the keywords with which the source constructs each class."""
    keywords: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                keywords[node.func.id] |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return keywords


def test_each_declared_field_of_a_status_is_written() -> None:
    keywords = written()
    shapes = [shape for shape in descendants(StatusPart) if not shape.__subclasses__()]
    assert len(shapes) > 10
    unwritten = {
        f"{shape.__name__}.{field.name}"
        for shape in shapes
        for field in structs.fields(shape)
        if field.name not in keywords[shape.__name__] | {OF_COLUMNS}
    }
    assert unwritten == set()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_of_mesh], ids=lambda kind: kind.kind)
def test_a_kind_with_a_status_declares_it_and_its_columns(kind) -> None:
    for group, version in kind.served_versions:
        schema = schema_of(kind, group, version)
        fields = schema["properties"].get("status", {}).get("properties", {})
        assert bool(fields) is kind.status
        paths = [column.path.split(".") for column in kind.columns if column.path.startswith(".status.")]
        assert {path[2].partition("[")[0] for path in paths} <= fields.keys()
        summary = with_summary(kind.columns, {"metadata": {}, "spec": {}}, {}).get(OF_COLUMNS, {})
        assert summary.keys() <= fields.get(OF_COLUMNS, {}).get("properties", {}).keys()
