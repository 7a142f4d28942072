"""What `kubectl get` shows: the columns of each kind and the cells of each object (`meta.k8s.io/v1` Table)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from headgate.resources.meta import Object

Cell: TypeAlias = str | int


_STEPS = (  # below so many seconds: unit and its size, lesser unit and its size
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 0),
    (8 * 86400, "d", 86400, "h", 3600),
)


class Column(NamedTuple):
    """A column; `wide` ones are shown by `-o wide` only."""

    name: str
    cell: Callable[[Object], Cell]
    description: str = ""
    wide: bool = False
    type: str = "string"
    format: str = ""


def table(
    kind: str, objects: Sequence[Object], *, metadata: Mapping[str, Any], include: str, api: str
) -> dict[str, Any]:
    """Return the Table of objects of one kind. `include` says what each row carries: Metadata, Object or None."""
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{api}",
        "metadata": dict(metadata),
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description or column.name,
                "priority": int(column.wide),
            }
            for column in columns
        ],
        "rows": [_row(obj, columns, include, api) for obj in objects],
    }


def columns_of(kind: str) -> Sequence[Column]:
    """Return the columns of a kind."""
    return _COLUMNS.get(kind, (_NAME, _AGE))


def partial(obj: Object, api: str = "v1") -> dict[str, Any]:
    """Return an object's metadata alone (PartialObjectMetadata)."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{api}", "metadata": obj["metadata"]}


def _row(obj: Object, columns: Sequence[Column], include: str, api: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [_cell(column, obj) for column in columns]}
    if include != "None":
        row["object"] = obj if include == "Object" else partial(obj, api)
    return row


def _cell(column: Column, obj: Object) -> Cell:
    """Return a cell; an object that came in from a file may have parts of any type, and must not hide the others."""
    try:
        return column.cell(obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "<invalid>"


def duration(since: str) -> str:
    """Return the time since an RFC 3339 instant as kubectl writes it: 45s, 3m10s, 5h, 12d; `<unknown>` without one."""
    if not since:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
    return _short(max(seconds, 0))


def _short(seconds: int) -> str:
    """Write the largest unit, and the next one while that is telling."""
    for below, unit, size, lesser, part in _STEPS:
        if seconds < below:
            small = seconds % size // part if part else 0
            return f"{seconds // size}{unit}{small}{lesser}" if small else f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def _at(*path: str, default: Cell = "<none>") -> Callable[[Object], Cell]:
    def cell(obj: Object) -> Cell:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return default if value in (None, "") else value if isinstance(value, int) else str(value)

    return cell


def _age(obj: Object) -> str:
    return duration(obj["metadata"].get("creationTimestamp") or "")


def _count(field: str) -> Callable[[Object], Cell]:
    return lambda obj: len(obj.get(field) or ())


def _words(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _selector(obj: Object) -> str:
    selector = (obj.get("spec") or {}).get("selector") or {}
    return _words(selector.get("matchLabels") or {} if obj["kind"] != "Service" else selector)


def _service_ports(obj: Object) -> str:
    ports = (obj.get("spec") or {}).get("ports") or ()
    texts = (
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol', 'TCP')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol', 'TCP')}"
        for port in ports
    )
    return ",".join(texts) or "<none>"


def _external(obj: Object) -> str:
    spec = obj.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", "<none>"))
    ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    found = [str(entry.get("ip") or entry.get("hostname")) for entry in ingress] + list(spec.get("externalIPs") or ())
    return ",".join(found) or ("<pending>" if spec.get("type") == "LoadBalancer" else "<none>")


def _containers(obj: Object) -> Sequence[Mapping[str, Any]]:
    spec = (obj.get("spec") or {}) if obj["kind"] == "Pod" else _template(obj)
    return spec.get("containers") or ()


def _template(obj: Object) -> Mapping[str, Any]:
    return ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}


def _container_names(obj: Object) -> str:
    return ",".join(str(container.get("name", "")) for container in _containers(obj))


def _images(obj: Object) -> str:
    return ",".join(str(container.get("image", "<none>")) for container in _containers(obj))


def _pod_ready(obj: Object) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(_containers(obj))}"


def _pod_status(obj: Object) -> str:
    status = obj.get("status") or {}
    text = status.get("reason") or status.get("phase") or "Pending"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        text = next((part["reason"] for part in state.values() if part and part.get("reason")), text)
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(text)


def _restarts(obj: Object) -> int:
    return sum(status.get("restartCount", 0) for status in (obj.get("status") or {}).get("containerStatuses") or ())


def _deployment_ready(obj: Object) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj.get('spec', {}).get('replicas', 1)}"


def _slice_ports(obj: Object) -> str:
    ports = ",".join(str(port.get("port") or "*") for port in obj.get("ports") or ())
    return ports or "<unset>"


def _addresses(obj: Object) -> str:
    found = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return ",".join(found[:3]) + more if found else "<unset>"


def _last_seen(obj: Object) -> str:
    series = obj.get("series") or {}
    return duration(series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime") or "")


def _about(obj: Object) -> str:
    involved = obj.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _backends(obj: Object) -> str:
    backends = (obj.get("spec") or {}).get("backends") or ()
    return ",".join(f"{backend.get('service')}:{backend.get('weight')}" for backend in backends) or "<none>"


def _condition(type: str) -> Callable[[Object], Cell]:
    def cell(obj: Object) -> Cell:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return next((str(one.get("status")) for one in conditions if one.get("type") == type), "Unknown")

    return cell


def _proxies(obj: Object) -> str:
    proxies = (obj.get("status") or {}).get("proxies") or {}
    return f"{proxies.get('programmed', 0)}/{proxies.get('total', 0)}"


def _pairs(field: str, *names: str) -> Callable[[Object], Cell]:
    def cell(obj: Object) -> Cell:
        entries = (obj.get("spec") or {}).get(field) or ()
        return ",".join("/".join(str(e[name]) for name in names if e.get(name)) for e in entries) or "<none>"

    return cell


def _names(field: str) -> Callable[[Object], Cell]:
    def cell(obj: Object) -> Cell:
        entries = (obj.get("spec") or {}).get(field) or ()
        return ",".join(str(e.get("name") if isinstance(e, Mapping) else e) for e in entries) or "<none>"

    return cell


def _gateway_address(obj: Object) -> str:
    given = (obj.get("status") or {}).get("addresses") or ()
    return ",".join(str(address.get("value")) for address in given) or "<none>"


def _at_parents(type: str) -> Callable[[Object], Cell]:
    """Say whether a condition holds at all of a route's parents."""

    def cell(obj: Object) -> Cell:
        parents = (obj.get("status") or {}).get("parents") or ()
        found = [one for parent in parents for one in parent.get("conditions") or () if one.get("type") == type]
        return (
            next((str(one["status"]) for one in found if one.get("status") != "True"), "True") if found else "Unknown"
        )

    return cell


_NAME = Column("Name", _at("metadata", "name"), "Name of the object.", format="name")
_AGE = Column("Age", _age, "Time since the object was created.")
_IN_PODS = (
    Column("Containers", _container_names, wide=True),
    Column("Images", _images, wide=True),
    Column("Selector", _selector, wide=True),
)
_PARENTS = Column("Parents", _names("parentRefs"), "What the route is attached to.", wide=True)
_HOSTNAMES = Column("Hostnames", _names("hostnames"), "The hosts that the route is for.")
_ROUTE_STATE = (
    Column("Accepted", _at_parents("Accepted"), "Whether every parent takes the route."),
    Column("Programmed", _at_parents("Programmed"), "Whether all proxies hold it."),
)
_COLUMNS: Mapping[str, Sequence[Column]] = {
    "Namespace": (_NAME, Column("Status", _at("status", "phase", default="Active")), _AGE),
    "Service": (
        _NAME,
        Column("Type", _at("spec", "type", default="ClusterIP")),
        Column("Cluster-IP", _at("spec", "clusterIP")),
        Column("External-IP", _external),
        Column("Port(s)", _service_ports),
        _AGE,
        Column("Selector", _selector, wide=True),
    ),
    "Pod": (
        _NAME,
        Column("Ready", _pod_ready, "Containers that are ready, of all."),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, type="integer"),
        _AGE,
        Column("IP", _at("status", "podIP"), wide=True),
        Column("Node", _at("spec", "nodeName"), wide=True),
    ),
    "Deployment": (
        _NAME,
        Column("Ready", _deployment_ready, "Pods that are ready, of those wanted."),
        Column("Up-to-date", _at("status", "updatedReplicas", default=0)),
        Column("Available", _at("status", "availableReplicas", default=0)),
        _AGE,
        *_IN_PODS,
    ),
    "ReplicaSet": (
        _NAME,
        Column("Desired", _at("spec", "replicas", default=1), type="integer"),
        Column("Current", _at("status", "replicas", default=0), type="integer"),
        Column("Ready", _at("status", "readyReplicas", default=0), type="integer"),
        _AGE,
        *_IN_PODS,
    ),
    "Secret": (_NAME, Column("Type", _at("type", default="Opaque")), Column("Data", _count("data")), _AGE),
    "ConfigMap": (
        _NAME,
        Column("Data", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
        _AGE,
    ),
    "ServiceAccount": (_NAME, Column("Secrets", _count("secrets")), _AGE),
    "EndpointSlice": (
        _NAME,
        Column("AddressType", _at("addressType")),
        Column("Ports", _slice_ports),
        Column("Endpoints", _addresses),
        _AGE,
    ),
    "Event": (
        Column("Last Seen", _last_seen),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _about),
        Column("Source", _at("source", "component", default=""), wide=True),
        Column("Message", _at("message", default="")),
        Column("First Seen", lambda obj: duration(obj.get("firstTimestamp") or obj.get("eventTime") or ""), wide=True),
        Column("Count", _at("count", default=1), wide=True),
        Column("Name", _at("metadata", "name"), format="name", wide=True),
    ),
    "TrafficSplit": (
        _NAME,
        Column("Service", _at("spec", "service"), "The root that clients call."),
        Column("Backends", _backends, "The backends and their weights."),
        Column("Accepted", _condition("Accepted"), "Whether the split can be used."),
        Column("Programmed", _condition("Programmed"), "Whether all proxies hold it."),
        _AGE,
        Column("Proxies", _proxies, "Proxies that confirmed it, of all.", wide=True),
    ),
    "HTTPRouteGroup": (_NAME, Column("Matches", _names("matches"), "The names of the matches."), _AGE),
    "GatewayClass": (
        _NAME,
        Column("Controller", _at("spec", "controllerName"), "Who makes Gateways of the class real."),
        Column("Accepted", _condition("Accepted")),
        _AGE,
        Column("Description", _at("spec", "description"), wide=True),
    ),
    "Gateway": (
        _NAME,
        Column("Class", _at("spec", "gatewayClassName")),
        Column("Address", _gateway_address, "The address that its listeners bind."),
        Column("Programmed", _condition("Programmed"), "Whether all proxies hold it."),
        _AGE,
        Column("Listeners", _names("listeners"), wide=True),
    ),
    "HTTPRoute": (_NAME, _HOSTNAMES, *_ROUTE_STATE, _AGE, _PARENTS),
    "GRPCRoute": (_NAME, _HOSTNAMES, *_ROUTE_STATE, _AGE, _PARENTS),
    "TCPRoute": (_NAME, *_ROUTE_STATE, _AGE, _PARENTS),
    "ReferenceGrant": (
        _NAME,
        Column("From", _pairs("from", "namespace", "kind")),
        Column("To", _pairs("to", "kind", "name")),
        _AGE,
    ),
}
