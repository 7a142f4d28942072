"""The tables of `kubectl get`: the columns of each kind and the cells of each object (`meta.k8s.io/v1` Table)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headgate.api import responses
from headgate.kinds import ACCESS, GATEWAY, MESH, SPECS, SPLIT
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
    return _COLUMNS.get((kind.group, kind.kind), (_NAME, _AGE))


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
_PROGRAMMED = "Whether all proxies have acknowledged the configuration."
_ROUTE_STATE = (
    Column("Accepted", cells.at_parents("Accepted"), "Whether every parent accepts the route."),
    Column("Programmed", cells.at_parents("Programmed"), _PROGRAMMED),
)
_STATE = (
    Column("Accepted", cells.condition("Accepted"), "Whether the object is valid and in use."),
    Column("Programmed", cells.condition("Programmed"), _PROGRAMMED),
)
_ACKNOWLEDGED = "The proxies that have acknowledged the configuration, out of all proxies that need it."
_PROXIES_CELL = cells.ratio("status.proxies.programmed", "status.proxies.total")
_REACH = (
    Column(
        "Sidecars",
        cells.ratio("status.pods.sidecars", "status.pods.total"),
        "The pods with a sidecar, out of all pods that the object selects.",
        wide=True,
    ),
    Column("Proxies", _PROXIES_CELL, _ACKNOWLEDGED, wide=True),
)
_PORT_ROUTE = (
    _NAME,
    Column("Ports", cells.listed("spec.matches.ports", str, "<all>"), "The ports that the route matches."),
    _AGE,
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
    (SPLIT, "TrafficSplit"): (
        _NAME,
        Column("Service", cells.at("spec.service"), "The root Service that clients call."),
        Column(
            "Backends",
            cells.listed("spec.backends", lambda one: f"{one.get('service')}:{one.get('weight')}"),
            "The backends and their weights.",
        ),
        *_STATE,
        _AGE,
        Column("Proxies", _PROXIES_CELL, _ACKNOWLEDGED, wide=True),
    ),
    (SPECS, "HTTPRouteGroup"): (
        _NAME,
        Column("Matches", cells.names("spec.matches"), "The names of the matches."),
        _AGE,
    ),
    (SPECS, "TCPRoute"): _PORT_ROUTE,
    (SPECS, "UDPRoute"): _PORT_ROUTE,
    (ACCESS, "TrafficTarget"): (
        _NAME,
        Column("Destination", cells.subjects("destination"), "The ServiceAccount whose pods may be called."),
        Column("Sources", cells.subjects("sources"), "The ServiceAccounts whose pods may call the destination."),
        Column("Rules", cells.rules, "The routes that allowed requests match."),
        *_STATE,
        _AGE,
        *_REACH,
    ),
    (MESH, "TLSConfig"): (
        _NAME,
        Column("Pods", cells.pod_labels, "The labels of the selected pods."),
        Column(
            "Subject-Names",
            cells.names("spec.subjectNames"),
            "Subject alternative names of the pods' certificates, besides the SPIFFE ID.",
        ),
        *_STATE,
        _AGE,
        *_REACH,
    ),
    (MESH, "Sidecar"): (
        _NAME,
        Column("Pods", cells.at("status.pods.total"), "The number of selected pods."),
        Column("Injected", cells.at("status.pods.injected"), "The number of pods that have the current generation."),
        *_STATE,
        _AGE,
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
        Column("Programmed", cells.condition("Programmed"), _PROGRAMMED),
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
