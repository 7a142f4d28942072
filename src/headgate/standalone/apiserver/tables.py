"""The tables of `kubectl get`: the columns of each kind and the cells of each object (`meta.k8s.io/v1` Table)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.api import responses
from headgate.kinds import GATEWAY
from headgate.resources.definitions.printer_columns import AGE, COLUMNS, PROGRAMMED, PrinterColumn
from headgate.resources.meta import Object
from headgate.resources.registry import Kind
from headgate.standalone.apiserver import printer_columns as cells
from headgate.standalone.apiserver.printer_columns import Cell


class Column(NamedTuple):
    """A column of a Table; a `wide` column is shown with `-o wide` only."""

    name: str
    cell: Callable[[Object], Cell]
    description: str = ""
    wide: bool = False
    type: str = "string"
    format: str = ""


def table(
    kind: Kind, objects: Sequence[Object], *, metadata: Mapping[str, Any], include: str, api: str
) -> dict[str, Any]:
    """Return the Table of objects of one kind.

    `include` selects the part of the object in each row: Metadata, Object or None. `api` is the version of meta.k8s.io.
    """
    columns = columns_of(kind)
    titles = [
        responses.column(
            one.name, one.description or one.name, type=one.type, format=one.format, priority=int(one.wide)
        )
        for one in columns
    ]
    return responses.table(titles, [_row(obj, columns, include, api) for obj in objects], api, metadata)


def columns_of(kind: Kind) -> Sequence[Column]:
    """Return the columns of a kind; the default is name and age."""
    key = (kind.group, kind.kind)
    if key in COLUMNS:
        return (_NAME, *(_shared(column, _CELLS.get((kind.kind, column.name))) for column in COLUMNS[key]))
    return _COLUMNS.get(key, (_NAME, _AGE))


def _shared(column: PrinterColumn, cell: Callable[[Object], Cell] | None) -> Column:
    """Return a column of a CustomResourceDefinition; without `cell` it shows the value at its JSONPath."""
    if column == AGE:
        return _AGE
    return Column(column.name, cell or cells.at_json_path(column.path), column.description, wide=column.wide)


def _row(obj: Object, columns: Sequence[Column], include: str, api: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [_cell(column, obj) for column in columns]}
    if include != "None":
        row["object"] = obj if include == "Object" else responses.partial_metadata(obj["metadata"], api)
    return row


def _cell(column: Column, obj: Object) -> Cell:
    """Return a cell. A field of the wrong type becomes `<invalid>`, so that the other rows are shown."""
    try:
        return column.cell(obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "<invalid>"


_NAME = Column("Name", cells.at("metadata.name"), "Name of the object.", format="name")
_AGE = Column("Age", cells.since("metadata.creationTimestamp"), "Time since the object was created.")
_IN_PODS = (
    Column("Containers", cells.listed("spec.template.spec.containers", lambda one: one.get("name", ""), ""), wide=True),
    Column(
        "Images", cells.listed("spec.template.spec.containers", lambda one: one.get("image", cells.NONE), ""), wide=True
    ),
    Column("Selector", cells.labels("spec.selector.matchLabels"), wide=True),
)
_PARENTS = Column("Parents", cells.names("spec.parentRefs"), "The parents that the route attaches to.", wide=True)
_HOSTNAMES = Column("Hostnames", cells.names("spec.hostnames"), "The hostnames that the route matches.")
_ROUTE_STATE = (
    Column("Accepted", cells.at_parents("Accepted"), "Whether every parent accepts the route."),
    Column("Programmed", cells.at_parents("Programmed"), PROGRAMMED),
)
_COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    ("", "Namespace"): (_NAME, Column("Status", cells.at("status.phase", "Active")), _AGE),
    ("", "Node"): (
        _NAME,
        Column("Status", cells.node_state),
        Column("Roles", cells.node_roles),
        _AGE,
        Column("Version", cells.at("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", cells.of_type("status.addresses", "InternalIP", "address", cells.NONE), wide=True),
        Column("External-IP", cells.of_type("status.addresses", "ExternalIP", "address", cells.NONE), wide=True),
        Column("OS-Image", cells.at("status.nodeInfo.osImage"), wide=True),
        Column("Kernel-Version", cells.at("status.nodeInfo.kernelVersion"), wide=True),
        Column("Container-Runtime", cells.at("status.nodeInfo.containerRuntimeVersion"), wide=True),
    ),
    ("", "Service"): (
        _NAME,
        Column("Type", cells.at("spec.type", "ClusterIP")),
        Column("Cluster-IP", cells.at("spec.clusterIP")),
        Column("External-IP", cells.external),
        Column("Port(s)", cells.listed("spec.ports", cells.service_port)),
        _AGE,
        Column("Selector", cells.labels("spec.selector"), wide=True),
    ),
    ("", "Pod"): (
        _NAME,
        Column("Ready", cells.pod_ready, "The ready containers, out of all containers."),
        Column("Status", cells.pod_status),
        Column("Restarts", cells.restarts, type="integer"),
        _AGE,
        Column("IP", cells.at("status.podIP"), wide=True),
        Column("Node", cells.at("spec.nodeName"), wide=True),
    ),
    ("apps", "Deployment"): (
        _NAME,
        Column(
            "Ready",
            cells.ratio("status.readyReplicas", "spec.replicas", 1),
            "The ready pods, out of the wanted replicas.",
        ),
        Column("Up-to-date", cells.at("status.updatedReplicas", 0)),
        Column("Available", cells.at("status.availableReplicas", 0)),
        _AGE,
        *_IN_PODS,
    ),
    ("apps", "ReplicaSet"): (
        _NAME,
        Column("Desired", cells.at("spec.replicas", 1), type="integer"),
        Column("Current", cells.at("status.replicas", 0), type="integer"),
        Column("Ready", cells.at("status.readyReplicas", 0), type="integer"),
        _AGE,
        *_IN_PODS,
    ),
    ("", "Secret"): (
        _NAME,
        Column("Type", cells.at("type", "Opaque")),
        Column("Data", cells.count("data")),
        _AGE,
    ),
    ("", "ConfigMap"): (
        _NAME,
        Column("Data", cells.count("data", "binaryData")),
        _AGE,
    ),
    ("", "ServiceAccount"): (_NAME, Column("Secrets", cells.count("secrets")), _AGE),
    ("discovery.k8s.io", "EndpointSlice"): (
        _NAME,
        Column("AddressType", cells.at("addressType")),
        Column("Ports", cells.listed("ports", lambda port: port.get("port") or "*", "<unset>")),
        Column("Endpoints", cells.addresses),
        _AGE,
    ),
    ("", "Event"): (
        Column("Last Seen", cells.since("series.lastObservedTime", "lastTimestamp", "eventTime")),
        Column("Type", cells.at("type")),
        Column("Reason", cells.at("reason")),
        Column("Object", cells.about),
        Column("Source", cells.at("source.component", ""), wide=True),
        Column("Message", cells.at("message", "")),
        Column("First Seen", cells.since("firstTimestamp", "eventTime"), wide=True),
        Column("Count", cells.at("count", 1), wide=True),
        Column("Name", cells.at("metadata.name"), format="name", wide=True),
    ),
    (GATEWAY, "GatewayClass"): (
        _NAME,
        Column("Controller", cells.at("spec.controllerName"), "The controller that implements Gateways of the class."),
        Column("Accepted", cells.condition("Accepted")),
        _AGE,
        Column("Description", cells.at("spec.description"), wide=True),
    ),
    (GATEWAY, "Gateway"): (
        _NAME,
        Column("Class", cells.at("spec.gatewayClassName")),
        Column(
            "Address",
            cells.listed("status.addresses", lambda one: one.get("value")),
            "The IP addresses of the Gateway's listeners.",
        ),
        Column("Programmed", cells.condition("Programmed"), PROGRAMMED),
        _AGE,
        Column("Listeners", cells.names("spec.listeners"), wide=True),
    ),
    (GATEWAY, "HTTPRoute"): (_NAME, _HOSTNAMES, *_ROUTE_STATE, _AGE, _PARENTS),
    (GATEWAY, "GRPCRoute"): (_NAME, _HOSTNAMES, *_ROUTE_STATE, _AGE, _PARENTS),
    (GATEWAY, "TCPRoute"): (_NAME, *_ROUTE_STATE, _AGE, _PARENTS),
    (GATEWAY, "ReferenceGrant"): (
        _NAME,
        Column("From", cells.pairs("spec.from", "namespace", "kind")),
        Column("To", cells.pairs("spec.to", "kind", "name")),
        _AGE,
    ),
}
_PROXIES = cells.ratio("status.proxies.programmed", "status.proxies.total")
_SIDECARS = cells.ratio("status.pods.sidecars", "status.pods.total")
_PORTS = cells.listed("spec.matches.ports", str, "<all>")
_CELLS: Mapping[tuple[str, str], Callable[[Object], Cell]] = {
    ("TrafficSplit", "Backends"): cells.listed(
        "spec.backends", lambda one: f"{one.get('service')}:{one.get('weight')}"
    ),
    ("TrafficSplit", "Proxies"): _PROXIES,
    ("HTTPRouteGroup", "Matches"): cells.names("spec.matches"),
    ("TCPRoute", "Ports"): _PORTS,
    ("UDPRoute", "Ports"): _PORTS,
    ("TrafficTarget", "Destination"): cells.subjects("destination"),
    ("TrafficTarget", "Sources"): cells.subjects("sources"),
    ("TrafficTarget", "Rules"): cells.rules,
    ("TrafficTarget", "Sidecars"): _SIDECARS,
    ("TrafficTarget", "Proxies"): _PROXIES,
    ("TLSConfig", "Pods"): cells.pod_labels,
    ("TLSConfig", "Subject-Names"): cells.names("spec.subjectNames"),
    ("TLSConfig", "Sidecars"): _SIDECARS,
    ("TLSConfig", "Proxies"): _PROXIES,
}
"""Functions for cells that are shorter than the value at the column's JSONPath, by kind and column."""
