"""The columns of `kubectl get`, on one machine and in CustomResourceDefinitions.

A CustomResourceDefinition prints the value at one JSONPath. A column without a JSONPath combines several values, so
only the embedded API prints it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headgate.resources import cells
from headgate.resources.cells import Cell
from headgate.resources.meta import Object
from headgate.resources.schema.builders import Schema

_AGE_PATH = ".metadata.creationTimestamp"


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


def condition_path(type: str) -> str:
    """Return the JSONPath of the status of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].status'


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
PROXIES = Column(
    "Proxies",
    "",
    "The proxies that have acknowledged the configuration, out of all proxies that need it.",
    wide=True,
    cell=cells.ratio("status.proxies.programmed", "status.proxies.total"),
)
SIDECARS = Column(
    "Sidecars",
    "",
    "The pods with a sidecar, out of all pods that the object selects.",
    wide=True,
    cell=cells.ratio("status.pods.sidecars", "status.pods.total"),
)
IN_TEMPLATE = (
    Column("Containers", cell=_of_containers("name", ""), wide=True),
    Column("Images", cell=_of_containers("image", cells.NONE), wide=True),
    Column("Selector", cell=cells.labels("spec.selector.matchLabels"), wide=True),
)
"""What `kubectl get -o wide` shows of a workload's pod template."""
