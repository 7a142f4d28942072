"""The columns of `kubectl get` for SMI's and headgate's kinds, on one machine and in CustomResourceDefinitions.

A CustomResourceDefinition prints the value at one JSONPath. A column without a JSONPath combines several values, so
only the embedded API prints it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headgate.kinds import ACCESS, MESH, SPECS, SPLIT
from headgate.resources.definitions.schema_builders import Schema

_AGE_PATH = ".metadata.creationTimestamp"


class PrinterColumn(NamedTuple):
    """A column; `path` is the JSONPath of its value, and a `wide` column is shown with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


def condition_path(type: str) -> str:
    """Return the JSONPath of the status of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].status'


def additional_printer_columns(columns: Iterable[PrinterColumn], schema: Schema) -> list[Mapping[str, Any]]:
    """Return the `additionalPrinterColumns` of a version: the columns whose fields its schema has.

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
    found: Any = schema
    for field in path.partition("[")[0].split(".")[1:]:
        found = found.get("properties", {}).get(field)
        if found is None:
            return False
    return True


AGE = PrinterColumn("Age", _AGE_PATH, "Time since the object was created.", "date")
PROGRAMMED = "Whether all proxies have acknowledged the configuration."
_STATE = (
    PrinterColumn("Accepted", condition_path("Accepted"), "Whether the object is valid and in use."),
    PrinterColumn("Programmed", condition_path("Programmed"), PROGRAMMED),
)
_PROXIES = PrinterColumn(
    "Proxies",
    "",
    "The proxies that have acknowledged the configuration, out of all proxies that need it.",
    wide=True,
)
_SIDECARS = PrinterColumn(
    "Sidecars", "", "The pods with a sidecar, out of all pods that the object selects.", wide=True
)
_PORT_ROUTE = (PrinterColumn("Ports", ".spec.matches.ports", "The ports that the route matches."), AGE)
COLUMNS: Mapping[tuple[str, str], tuple[PrinterColumn, ...]] = {
    (SPLIT, "TrafficSplit"): (
        PrinterColumn("Service", ".spec.service", "The root Service that clients call."),
        PrinterColumn("Backends", ".spec.backends", "The backends and their weights."),
        *_STATE,
        AGE,
        _PROXIES,
    ),
    (SPECS, "HTTPRouteGroup"): (PrinterColumn("Matches", "", "The names of the matches."), AGE),
    (SPECS, "TCPRoute"): _PORT_ROUTE,
    (SPECS, "UDPRoute"): _PORT_ROUTE,
    (ACCESS, "TrafficTarget"): (
        PrinterColumn("Destination", ".spec.destination.name", "The ServiceAccount whose pods may be called."),
        PrinterColumn("Sources", "", "The ServiceAccounts whose pods may call the destination."),
        PrinterColumn("Rules", "", "The routes that allowed requests match."),
        *_STATE,
        AGE,
        _SIDECARS,
        _PROXIES,
    ),
    (MESH, "TLSConfig"): (
        PrinterColumn("Pods", ".spec.selector.matchLabels", "The labels of the selected pods."),
        PrinterColumn(
            "Subject-Names",
            ".spec.subjectNames",
            "Subject alternative names of the pods' certificates, besides the SPIFFE ID.",
        ),
        *_STATE,
        AGE,
        _SIDECARS,
        _PROXIES,
    ),
    (MESH, "Sidecar"): (
        PrinterColumn("Pods", ".status.pods.total", "The number of selected pods.", "integer"),
        PrinterColumn(
            "Injected", ".status.pods.injected", "The number of pods that have the current generation.", "integer"
        ),
        *_STATE,
        AGE,
    ),
    (MESH, "Canary"): (
        PrinterColumn("Service", ".spec.service", "The root Service that clients call."),
        PrinterColumn("Phase", ".status.phase", "The state of the rollout."),
        PrinterColumn("Step", ".status.step", "The number of the current step.", "integer"),
        PrinterColumn("Canary-Weight", ".status.canaryWeight", "The canary's share of the requests."),
        AGE,
        PrinterColumn("Message", ".status.message", "The reason of the state.", wide=True),
    ),
}
"""The columns after the name, by group and kind."""
