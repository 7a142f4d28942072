"""The cells of `kubectl get`: functions from an object to what one column shows of it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from headgate.resources.meta import Object

Cell: TypeAlias = str | int

_ROLE = "node-role.kubernetes.io/"
_STEPS = (  # below so many seconds: unit and its size, lesser unit and its size
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 0),
    (8 * 86400, "d", 86400, "h", 3600),
)


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


def at(*path: str, default: Cell = "<none>") -> Callable[[Object], Cell]:
    """Return the cell of one field."""

    def cell(obj: Object) -> Cell:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return default if value in (None, "") else value if isinstance(value, int) else str(value)

    return cell


def age(obj: Object) -> str:
    """Time since the object was created."""
    return duration(obj["metadata"].get("creationTimestamp") or "")


def count(field: str) -> Callable[[Object], Cell]:
    """Return the cell that counts the entries of a top-level field."""
    return lambda obj: len(obj.get(field) or ())


def _words(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def selector(obj: Object) -> str:
    """Labels of the pods that a workload or a Service selects."""
    written = (obj.get("spec") or {}).get("selector") or {}
    return _words(written.get("matchLabels") or {} if obj["kind"] != "Service" else written)


def service_ports(obj: Object) -> str:
    """Ports of a Service: `80:30080/TCP,53/UDP`."""
    ports = (obj.get("spec") or {}).get("ports") or ()
    texts = (
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol', 'TCP')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol', 'TCP')}"
        for port in ports
    )
    return ",".join(texts) or "<none>"


def external(obj: Object) -> str:
    """Addresses of a Service from outside."""
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


def container_names(obj: Object) -> str:
    """Names of the containers, of a pod or of its template."""
    return ",".join(str(container.get("name", "")) for container in _containers(obj))


def images(obj: Object) -> str:
    """Images of the containers, of a pod or of its template."""
    return ",".join(str(container.get("image", "<none>")) for container in _containers(obj))


def pod_ready(obj: Object) -> str:
    """Containers that are ready, of all: `1/2`."""
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(_containers(obj))}"


def pod_status(obj: Object) -> str:
    """The phase of a pod, or what is the matter with it."""
    status = obj.get("status") or {}
    text = status.get("reason") or status.get("phase") or "Pending"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        text = next((part["reason"] for part in state.values() if part and part.get("reason")), text)
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(text)


def restarts(obj: Object) -> int:
    """How often containers of a pod were started again."""
    return sum(status.get("restartCount", 0) for status in (obj.get("status") or {}).get("containerStatuses") or ())


def deployment_ready(obj: Object) -> str:
    """Pods that are ready, of those wanted: `2/3`."""
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj.get('spec', {}).get('replicas', 1)}"


def slice_ports(obj: Object) -> str:
    """Ports of an EndpointSlice."""
    ports = ",".join(str(port.get("port") or "*") for port in obj.get("ports") or ())
    return ports or "<unset>"


def addresses(obj: Object) -> str:
    """Addresses of an EndpointSlice, the first three."""
    found = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return ",".join(found[:3]) + more if found else "<unset>"


def node_state(obj: Object) -> str:
    """Whether a node is ready, and whether it takes new pods."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), "")
    state = {"True": "Ready", "": "Unknown"}.get(ready, "NotReady")
    return f"{state},SchedulingDisabled" if (obj.get("spec") or {}).get("unschedulable") else state


def node_roles(obj: Object) -> str:
    """Roles of a node, which its labels name."""
    labels = obj["metadata"].get("labels") or {}
    return ",".join(sorted(name[len(_ROLE) :] for name in labels if name.startswith(_ROLE))) or "<none>"


def node_address(type: str) -> Callable[[Object], Cell]:
    """Return the cell with one of a node's addresses."""

    def cell(obj: Object) -> Cell:
        found = (obj.get("status") or {}).get("addresses") or ()
        return next((str(one.get("address")) for one in found if one.get("type") == type), "<none>")

    return cell


def last_seen(obj: Object) -> str:
    """Time since an Event last happened."""
    series = obj.get("series") or {}
    return duration(series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime") or "")


def about(obj: Object) -> str:
    """The object of an Event: `trafficsplit/website`."""
    involved = obj.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def backends(obj: Object) -> str:
    """Backends of a split and their weights: `v1:90,v2:10`."""
    found = (obj.get("spec") or {}).get("backends") or ()
    return ",".join(f"{backend.get('service')}:{backend.get('weight')}" for backend in found) or "<none>"


def condition(type: str) -> Callable[[Object], Cell]:
    """Return the cell with the status of one condition."""

    def cell(obj: Object) -> Cell:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return next((str(one.get("status")) for one in conditions if one.get("type") == type), "Unknown")

    return cell


def proxies(obj: Object) -> str:
    """Proxies that confirmed an object, of all: `1/3`."""
    counts = (obj.get("status") or {}).get("proxies") or {}
    return f"{counts.get('programmed', 0)}/{counts.get('total', 0)}"


def pairs(field: str, *names: str) -> Callable[[Object], Cell]:
    """Return the cell with parts of the entries of a list in `spec`, joined by slashes."""

    def cell(obj: Object) -> Cell:
        entries = (obj.get("spec") or {}).get(field) or ()
        return ",".join("/".join(str(e[name]) for name in names if e.get(name)) for e in entries) or "<none>"

    return cell


def names(field: str) -> Callable[[Object], Cell]:
    """Return the cell with the names in a list in `spec`."""

    def cell(obj: Object) -> Cell:
        entries = (obj.get("spec") or {}).get(field) or ()
        return ",".join(str(e.get("name") if isinstance(e, Mapping) else e) for e in entries) or "<none>"

    return cell


def _spec(obj: Object) -> Mapping[str, Any]:
    """Return where an object's fields are: a TrafficTarget of v1alpha1 has them at top level."""
    return obj.get("spec") or (obj if "destination" in obj else {})


def subjects(field: str) -> Callable[[Object], Cell]:
    """Return the cell with a TrafficTarget's ServiceAccounts, `namespace/name` and perhaps a port."""

    def cell(obj: Object) -> Cell:
        found = _spec(obj).get(field) or ()
        return ",".join(_subject(one) for one in ([found] if isinstance(found, Mapping) else found)) or "<none>"

    return cell


def _subject(subject: Mapping[str, Any]) -> str:
    named = "/".join(str(subject[part]) for part in ("namespace", "name") if subject.get(part))
    return f"{named}:{subject['port']}" if subject.get("port") else named


def rules(obj: Object) -> str:
    """Rules of a TrafficTarget: `routes/metrics+health,tcp`."""
    found = _spec(obj).get("rules") or _spec(obj).get("specs") or ()
    return ",".join(map(_rule, found)) or "<none>"


def _rule(rule: Mapping[str, Any]) -> str:
    matches = "+".join(rule.get("matches") or ())
    return f"{rule['name']}/{matches}" if matches else str(rule["name"])


def route_ports(obj: Object) -> str:
    """Ports of a TCPRoute or UDPRoute."""
    ports = ((obj.get("spec") or {}).get("matches") or {}).get("ports") or ()
    return ",".join(map(str, ports)) or "<all>"


def pod_labels(obj: Object) -> str:
    """Labels of the pods that a TLSConfig selects."""
    labels = _words(obj["spec"]["selector"]["matchLabels"])
    return "<all>" if labels == "<none>" else labels


def sidecars(obj: Object) -> str:
    """Pods with a sidecar, of all that an object is about: `2/3`."""
    pods = (obj.get("status") or {}).get("pods") or {}
    return f"{pods.get('sidecars', 0)}/{pods.get('total', 0)}"


def gateway_address(obj: Object) -> str:
    """Addresses of a Gateway."""
    given = (obj.get("status") or {}).get("addresses") or ()
    return ",".join(str(address.get("value")) for address in given) or "<none>"


def at_parents(type: str) -> Callable[[Object], Cell]:
    """Say whether a condition holds at all of a route's parents."""

    def cell(obj: Object) -> Cell:
        parents = (obj.get("status") or {}).get("parents") or ()
        found = [one for parent in parents for one in parent.get("conditions") or () if one.get("type") == type]
        return (
            next((str(one["status"]) for one in found if one.get("status") != "True"), "True") if found else "Unknown"
        )

    return cell
