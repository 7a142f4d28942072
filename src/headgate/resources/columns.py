"""The columns of `kubectl get`, on one machine and in CustomResourceDefinitions.

A CustomResourceDefinition prints the value at one JSONPath. Of a column that combines several values, `status.summary` has
the text for it. Columns of kinds whose definitions are not headgate's need no JSONPath.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headgate.resources import cells
from headgate.resources.cells import Cell
from headgate.resources.meta import Object
from headgate.resources.schema.builders import Schema, record, text

_AGE_PATH = ".metadata.creationTimestamp"
_SUMMARY = ".status.summary."


class Column(NamedTuple):
    """A column; a `wide` column is shown with `-o wide` only.

    `path` is the JSONPath of its value in CustomResourceDefinitions. On one machine `cell` returns what is shown; without it
    the value at `path` is.
    """

    name: str
    path: str = ""
    description: str = ""
    type: str = "string"
    wide: bool = False
    cell: Callable[[Object], Cell] | None = None
    format: str = ""

    def shown(self, obj: Object) -> Cell:
        """Return what is shown of an object on one machine."""
        return (self.cell or cells.at_json_path(self.path))(obj)


def condition_path(type: str, field: str = "status") -> str:
    """Return the JSONPath to a field of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].{field}'


def summary_path(field: str) -> str:
    """Return the JSONPath of a text in `status.summary`, which the status writer takes from the column's `cell`.

    A CustomResourceDefinition can't combine values, so the status has them as text.
    """
    return f"{_SUMMARY}{field}"


def with_summary(columns: Iterable[Column], obj: Object, status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status with the texts of the columns that combine several values. A cell that can't be computed is left out."""
    texts: dict[str, Cell] = {}
    for column in columns:
        if column.cell and column.path.startswith(_SUMMARY):
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                texts[column.path.removeprefix(_SUMMARY)] = column.cell(obj)
    return {**status, "summary": texts} if texts else status


def summary_schema(columns: Iterable[Column]) -> Schema:
    """Return the schema of `status.summary`, which has the texts of columns that combine several values."""
    described = {column.path.removeprefix(_SUMMARY): column for column in columns if column.path.startswith(_SUMMARY)}
    fields = {field: text(column.description) for field, column in described.items()}
    return record("Texts that `kubectl get` shows.", **fields)


def additional_printer_columns(columns: Iterable[Column], schema: Schema) -> list[Mapping[str, Any]]:
    """Return the `additionalColumns` of a version: the columns whose fields its schema has.

    Old versions have no field `spec`; they have its fields at the top level.
    """
    flat = "spec" not in schema["properties"]
    placed = [(column.path.replace(".spec.", ".", 1) if flat else column.path, column) for column in columns]
    return [
        {
            "name": column.name,
            "type": column.type,
            "jsonPath": path,
            "description": column.description,
            "priority": int(column.wide),
        }
        for path, column in placed
        if path == _AGE_PATH or (path and _has(schema, path))
    ]


def _has(schema: Schema, path: str) -> bool:
    part: Any = schema
    for field in path.partition("[")[0].split(".")[1:]:
        part = part.get("properties", {}).get(field)
        if part is None:
            return False
    return True


def _of_containers(field: str, default: str) -> Callable[[Object], Cell]:
    return cells.listed("spec.template.spec.containers", lambda container: container.get(field, default), "")


NAME = Column("Name", "", "Name of the object.", cell=cells.at("metadata.name"), format="name")
AGE = Column(
    "Age",
    _AGE_PATH,
    "Time since the object was created.",
    "date",
    cell=cells.since("metadata.creationTimestamp"),
)
PROGRAMMED = "Whether all proxies have acknowledged the configuration."
STATE = (
    Column("Accepted", condition_path("Accepted"), "Whether the object is valid and in use."),
    Column("Programmed", condition_path("Programmed"), PROGRAMMED),
)
PROXIES = (
    Column(
        "Proxies", ".status.proxies.total", "The number of proxies that need the configuration.", "integer", wide=True
    ),
    Column(
        "Acknowledged",
        ".status.proxies.programmed",
        "The number of proxies that have acknowledged the configuration.",
        "integer",
        wide=True,
    ),
)
SELECTED = (
    Column("Selected", ".status.pods.total", "The number of pods that the object selects.", "integer", wide=True),
    Column("Sidecars", ".status.pods.sidecars", "The number of these pods with a sidecar.", "integer", wide=True),
)
IN_TEMPLATE = (
    Column("Containers", cell=_of_containers("name", ""), wide=True),
    Column("Images", cell=_of_containers("image", cells.NONE), wide=True),
    Column("Selector", cell=cells.labels("spec.selector.matchLabels"), wide=True),
)
"""What `kubectl get -o wide` shows of a workload's pod template."""
