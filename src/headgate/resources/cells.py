"""The cells of `kubectl get` on one machine: functions from an object to a text or a number."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from headgate.resources.meta import Object

Cell: TypeAlias = str | int
Cells: TypeAlias = Callable[[Object], Cell]

NONE = "<none>"
_CONDITION = re.compile(r'\.status\.conditions\[\?\(@\.type=="(\w+)"\)\]\.(\w+)')
_ROLE = "node-role.kubernetes.io/"
# Formats of ages: the age in seconds below which a format applies, the unit and its seconds, the smaller unit and its
# seconds (0: no smaller unit).
_STEPS = (
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 0),
    (8 * 86400, "d", 86400, "h", 3600),
)


def duration(since: str, until: str = "") -> str:
    """Return the age of an RFC 3339 time, now or at another time, as kubectl shows it: 45s, 3m10s, 5h, 12d.

    `<unknown>` for an empty text.
    """
    if not since:
        return "<unknown>"
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    seconds = max(int((end - datetime.fromisoformat(since)).total_seconds()), 0)
    for below, unit, size, lesser, part in _STEPS:
        if seconds < below:
            small = seconds % size // part if part else 0
            return f"{seconds // size}{unit}{small}{lesser}" if small else f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def value(obj: Object, path: str) -> Any:
    """Return the value at a path, None when a field is absent. Raises TypeError when a parent is not an object."""
    node: Any = obj
    for step in path.split("."):
        if node and not isinstance(node, Mapping):
            raise TypeError(f"a parent of {path} is not an object")
        node = node.get(step) if node else None
    return node


def _values(obj: Object, path: str) -> Sequence[Any]:
    return value(obj, path) or ()


def at(path: str, default: Cell = NONE) -> Cells:
    """Return a column that shows the field at `path`, or `default` if the field is absent or empty."""

    def cell(obj: Object) -> Cell:
        try:
            content = value(obj, path)
        except TypeError:
            return default
        return default if content in (None, "") else content if isinstance(content, int) else str(content)

    return cell


def at_json_path(path: str) -> Cells:
    """Return a column that shows the value at a JSONPath, a field or one of a condition, as a cluster does.

    A value that is absent is an empty cell.
    """
    if condition := _CONDITION.fullmatch(path):
        return of_type("status.conditions", condition[1], condition[2], "")

    def cell(obj: Object) -> Cell:
        content = value(obj, path.removeprefix("."))
        if isinstance(content, list | tuple | Mapping):
            return json.dumps(content, separators=(",", ":"), sort_keys=True)
        return "" if content is None else content if isinstance(content, int) else str(content)

    return cell


def since(*paths: str) -> Cells:
    """Return a column that shows the age of the first time at `paths`. Paths that the object lacks are skipped."""
    return lambda obj: duration(next((time for path in paths if (time := value(obj, path))), ""))


def count(*paths: str) -> Cells:
    """Return a column that shows the total number of entries in the lists or maps at `paths`."""
    return lambda obj: sum(len(_values(obj, path)) for path in paths)


def ratio(part: str, whole: str, default: int = 0) -> Cells:
    """Return a column that shows two numbers, as in `1/3`; `default` is the second number if `whole` is absent."""

    def cell(obj: Object) -> Cell:
        total = value(obj, whole)
        return f"{value(obj, part) or 0}/{default if total is None else total}"

    return cell


def labels(path: str) -> Cells:
    """Return a column that shows the labels at `path`: `app=web,tier=front`."""
    return lambda obj: _words(value(obj, path) or {}) or NONE


def selector(path: str) -> Cells:
    """Return a column that shows the label selector at `path` as kubectl writes one: `app=web,tier in (a,b),!old`."""

    def cell(obj: Object) -> Cell:
        selector = value(obj, path)
        texts = [_words(selector.get("matchLabels") or {}), *map(_requirement, selector.get("matchExpressions") or ())]
        return ",".join(filter(None, texts)) or "<all>"

    return cell


def _requirement(row: Mapping[str, Any]) -> str:
    operator = row["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return f"{'' if operator == 'Exists' else '!'}{row['key']}"
    return f"{row['key']} {operator.lower()} ({','.join(row['values'])})"


def _words(labels: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={text}" for key, text in sorted(labels.items()))


def listed(path: str, text: Callable[[Any], object], empty: str = NONE) -> Cells:
    """Return a column that shows `text(item)` for each item of the list at `path`, or `empty` without items."""
    return lambda obj: ",".join(str(text(entry)) for entry in _values(obj, path)) or empty


def names(path: str) -> Cells:
    """Return a column that shows the names in the list at `path`. Each item is a name or an object with a `name`."""
    return listed(path, lambda entry: entry.get("name") if isinstance(entry, Mapping) else entry)


def pairs(path: str, *fields: str) -> Cells:
    """Return a column that shows each item of a list as its fields, joined by slashes: `80/TCP,443/TCP`."""
    return listed(path, lambda entry: "/".join(str(entry[name]) for name in fields if entry.get(name)))


def of_type(path: str, type: str, field: str, default: str) -> Cells:
    """Return a column that shows `field` of the list item with this `type`, such as a condition or an address."""
    return lambda obj: next(
        (str(entry.get(field)) for entry in _values(obj, path) if entry.get("type") == type), default
    )


def condition(type: str) -> Cells:
    """Return a column that shows the status of the condition `type`."""
    return of_type("status.conditions", type, "status", "Unknown")


def at_parents(type: str) -> Cells:
    """Return a column that shows a condition of a route: True if the condition is True at all parents."""

    def cell(obj: Object) -> Cell:
        conditions = [
            condition for parent in _values(obj, "status.parents") for condition in parent.get("conditions") or ()
        ]
        statuses = [str(condition["status"]) for condition in conditions if condition.get("type") == type]
        return next((status for status in statuses if status != "True"), "True") if statuses else "Unknown"

    return cell


def service_port(port: Mapping[str, Any]) -> str:
    """Format a port of a Service: `80:30080/TCP`, `53/UDP`."""
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}"


def external(obj: Object) -> str:
    """Return the external addresses of a Service."""
    type = value(obj, "spec.type")
    if type == "ExternalName":
        return str(value(obj, "spec.externalName") or NONE)
    ingress = _values(obj, "status.loadBalancer.ingress")
    addresses = [
        *(str(entry.get("ip") or entry.get("hostname")) for entry in ingress),
        *_values(obj, "spec.externalIPs"),
    ]
    return ",".join(addresses) or ("<pending>" if type == "LoadBalancer" else NONE)


def pod_ready(obj: Object) -> str:
    """Return how many containers of a pod are ready, and how many it has: `1/2`."""
    ready = sum(bool(status.get("ready")) for status in _values(obj, "status.containerStatuses"))
    return f"{ready}/{len(_values(obj, 'spec.containers'))}"


def pod_status(obj: Object) -> str:
    """Return the status of a pod: Terminating, the reason of a container's state, or the phase."""
    text = value(obj, "status.reason") or value(obj, "status.phase") or "Pending"
    for container in _values(obj, "status.containerStatuses"):
        states = (container.get("state") or {}).values()
        text = next((state["reason"] for state in states if state and state.get("reason")), text)
    return "Terminating" if value(obj, "metadata.deletionTimestamp") else str(text)


def restarts(obj: Object) -> int:
    """Return the number of container restarts of a pod."""
    return sum(status.get("restartCount", 0) for status in _values(obj, "status.containerStatuses"))


def addresses(obj: Object) -> str:
    """Return the first three addresses of an EndpointSlice, and how many more it has."""
    listed = [address for endpoint in _values(obj, "endpoints") for address in endpoint.get("addresses") or ()]
    more = f" + {len(listed) - 3} more..." if len(listed) > 3 else ""
    return ",".join(listed[:3]) + more if listed else "<unset>"


def node_state(obj: Object) -> str:
    """Return the status of a node: Ready, NotReady or Unknown, and SchedulingDisabled when it is cordoned."""
    ready = str(of_type("status.conditions", "Ready", "status", "")(obj))
    state = {"True": "Ready", "": "Unknown"}.get(ready, "NotReady")
    return f"{state},SchedulingDisabled" if value(obj, "spec.unschedulable") else state


def node_roles(obj: Object) -> str:
    """Return the roles of a node, from its labels."""
    roles = sorted(name[len(_ROLE) :] for name in _values(obj, "metadata.labels") if name.startswith(_ROLE))
    return ",".join(roles) or NONE


def about(obj: Object) -> str:
    """Return the object that an Event is about: `trafficsplit/website`."""
    kind, name = (value(obj, f"involvedObject.{field}") or "" for field in ("kind", "name"))
    return f"{str(kind).lower()}/{name}"


def _in_spec(obj: Object, *fields: str) -> Any:
    """Return the value of the first field among `fields` that a TrafficTarget has. In v1alpha1, the fields are not in `spec`."""
    return next((content for name in fields if (content := value(obj, f"spec.{name}") or obj.get(name))), ())


def subjects(field: str) -> Cells:
    """Return a column that shows ServiceAccounts of a TrafficTarget: `namespace/name` or `namespace/name:port`."""

    def cell(obj: Object) -> Cell:
        accounts = _in_spec(obj, field)
        return ",".join(map(_subject, [accounts] if isinstance(accounts, Mapping) else accounts)) or NONE

    return cell


def _subject(subject: Mapping[str, Any]) -> str:
    named = "/".join(str(subject[part]) for part in ("namespace", "name") if subject.get(part))
    return f"{named}:{subject['port']}" if subject.get("port") else named


def rules(obj: Object) -> str:
    """Return the rules of a TrafficTarget: `routes/metrics+health,tcp`."""
    return ",".join(map(_rule, _in_spec(obj, "rules", "specs"))) or NONE


def _rule(rule: Mapping[str, Any]) -> str:
    matches = "+".join(rule.get("matches") or ())
    return f"{rule['name']}/{matches}" if matches else str(rule["name"])
