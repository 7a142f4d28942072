"""The columns of further kinds in `kubectl get`, as a Kubernetes API server prints them."""

from collections.abc import Mapping

from headgate.resources import cells
from headgate.resources.cells import NONE, Cell
from headgate.resources.columns import AGE, IN_TEMPLATE, NAME, Column
from headgate.resources.meta import Object, part, rows

_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_UNSET = "<unset>"
_MOST_HOSTS = 3
_CREATED = Column("Created At", cell=cells.at("metadata.creationTimestamp"))


def _access_modes(path: str) -> cells.Cells:
    return lambda obj: ",".join(_ACCESS_MODES.get(mode, mode) for mode in cells.value(obj, path) or ())


def _hosts(ingress: Object) -> Cell:
    hosts = [str(rule["host"]) for _, rule in rows(part(ingress, "spec").get("rules")) if rule.get("host")]
    more = f" + {len(hosts) - _MOST_HOSTS} more..." if len(hosts) > _MOST_HOSTS else ""
    return ",".join(hosts[:_MOST_HOSTS]) + more or "*"


def _balancers(ingress: Object) -> Cell:
    points = rows(part(part(ingress, "status"), "loadBalancer").get("ingress"))
    return ",".join(str(point.get("ip") or point.get("hostname")) for _, point in points)


def _scaled(autoscaler: Object) -> Cell:
    target = part(part(autoscaler, "spec"), "scaleTargetRef")
    return f"{target.get('kind')}/{target.get('name')}"


def _metrics(autoscaler: Object) -> Cell:
    current = dict(rows(part(autoscaler, "status").get("currentMetrics")))
    texts = [_metric(metric, current.get(index, {})) for index, metric in rows(part(autoscaler, "spec").get("metrics"))]
    more = f" + {len(texts) - 2} more..." if len(texts) > 2 else ""
    return ", ".join(texts[:2]) + more or NONE


def _metric(metric: Object, status: Object) -> str:
    """Return the current value and the target of a metric: `cpu: 12%/70%`. `status` has the current value."""
    source, target = _source(metric), part(_source(metric), "target")
    current = part(_source(status), "current")
    field = next((field for field in ("averageUtilization", "averageValue") if field in target), "value")
    unit = "%" if field == "averageUtilization" else ""
    now = f"{current[field]}{unit}" if field in current else "<unknown>"
    name = f"{source['name']}: " if "name" in source else ""
    share = " (avg)" if metric.get("type") in ("Object", "External") and field == "averageValue" else ""
    return f"{name}{now}/{target.get(field)}{unit}{share}"


def _source(metric: Object) -> Object:
    """Return the part of a metric, or of its status, that its type names."""
    return next((value for name, value in metric.items() if name != "type" and isinstance(value, Mapping)), {})


def _labels(path: str) -> Column:
    return Column("Node Selector", cell=cells.labels(path))


def _role(binding: Object) -> Cell:
    role = part(binding, "roleRef")
    return f"{role.get('kind')}/{role.get('name')}"


def _number(name: str, path: str, default: Cell = 0) -> Column:
    return Column(name, cell=cells.at(path, default), type="integer")


def _text(name: str, path: str, default: Cell = NONE) -> Column:
    return Column(name, cell=cells.at(path, default))


def _flag(name: str, path: str, *, default: bool = False) -> Column:
    def cell(obj: Object) -> Cell:
        value = cells.value(obj, path)
        return str(default if value is None else bool(value)).lower()

    return Column(name, cell=cell)


def _addresses(endpoints: Object) -> Cell:
    ports_and_hosts = [
        f"{address.get('ip')}:{port.get('port')}"
        for _, subset in rows(endpoints.get("subsets"))
        for _, port in rows(subset.get("ports"))
        for _, address in rows(subset.get("addresses"))
    ]
    more = f" + {len(ports_and_hosts) - _MOST_HOSTS} more..." if len(ports_and_hosts) > _MOST_HOSTS else ""
    return ",".join(ports_and_hosts[:_MOST_HOSTS]) + more or NONE


def _last_schedule(job: Object) -> Cell:
    last = cells.value(job, "status.lastScheduleTime")
    return cells.duration(last) if last else NONE


def _job_state(job: Object) -> Cell:
    reached = {row.get("type") for _, row in rows(part(job, "status").get("conditions")) if row.get("status") == "True"}
    if "Complete" in reached or "Failed" in reached:
        return "Complete" if "Complete" in reached else "Failed"
    return "Suspended" if cells.value(job, "spec.suspend") else "Running"


def _job_duration(job: Object) -> Cell:
    start = cells.value(job, "status.startTime")
    return cells.duration(start, cells.value(job, "status.completionTime") or "") if start else ""


def _parameters(ingress_class: Object) -> Cell:
    reference = part(part(ingress_class, "spec"), "parameters")
    group = f".{reference['apiGroup']}" if reference.get("apiGroup") else ""
    return f"{reference['kind']}{group}/{reference['name']}" if reference else NONE


def _pod_selector(policy: Object) -> Cell:
    text = cells.selector("spec.podSelector")(policy)
    return NONE if text == "<all>" else text


def _quota(quota: Object) -> Cell:
    used, hard = part(part(quota, "status"), "used"), part(part(quota, "spec"), "hard")
    return ", ".join(f"{name}: {used.get(name, 0)}/{limit}" for name, limit in sorted(hard.items()))


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "Endpoints": (NAME, Column("Endpoints", cell=_addresses), AGE),
    "PersistentVolumeClaim": (
        NAME,
        _text("Status", "status.phase", "Pending"),
        _text("Volume", "spec.volumeName", ""),
        _text("Capacity", "status.capacity.storage", ""),
        Column("Access Modes", cell=_access_modes("status.accessModes")),
        _text("StorageClass", "spec.storageClassName", ""),
        _text("VolumeAttributesClass", "spec.volumeAttributesClassName", _UNSET),
        AGE,
    ),
    "PersistentVolume": (
        NAME,
        _text("Capacity", "spec.capacity.storage", ""),
        Column("Access Modes", cell=_access_modes("spec.accessModes")),
        _text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", "Retain"),
        _text("Status", "status.phase", "Pending"),
        _text("StorageClass", "spec.storageClassName", ""),
        AGE,
    ),
    "ReplicationController": (
        NAME,
        _number("Desired", "spec.replicas", 1),
        _number("Current", "status.replicas"),
        _number("Ready", "status.readyReplicas"),
        AGE,
    ),
    "DaemonSet": (
        NAME,
        _number("Desired", "status.desiredNumberScheduled"),
        _number("Current", "status.currentNumberScheduled"),
        _number("Ready", "status.numberReady"),
        _number("Up-to-date", "status.updatedNumberScheduled"),
        _number("Available", "status.numberAvailable"),
        _labels("spec.template.spec.nodeSelector"),
        AGE,
        *IN_TEMPLATE,
    ),
    "StatefulSet": (
        NAME,
        Column("Ready", cell=cells.ratio("status.readyReplicas", "spec.replicas", 1)),
        AGE,
        *IN_TEMPLATE[:2],
    ),
    "HorizontalPodAutoscaler": (
        NAME,
        Column("Reference", cell=_scaled),
        Column("Targets", cell=_metrics),
        _text("MinPods", "spec.minReplicas", 1),
        _number("MaxPods", "spec.maxReplicas"),
        _number("Replicas", "status.currentReplicas"),
        AGE,
    ),
    "CronJob": (
        NAME,
        _text("Schedule", "spec.schedule"),
        _text("Timezone", "spec.timeZone"),
        Column("Suspend", cell=lambda obj: str(bool(cells.value(obj, "spec.suspend"))), type="boolean"),
        Column("Active", cell=cells.count("status.active"), type="integer"),
        Column("Last Schedule", cell=_last_schedule),
        AGE,
    ),
    "Job": (
        NAME,
        Column("Status", cell=_job_state),
        Column("Completions", cell=cells.ratio("status.succeeded", "spec.completions", 1)),
        Column("Duration", cell=_job_duration),
        AGE,
        *IN_TEMPLATE,
    ),
    "Ingress": (
        NAME,
        _text("Class", "spec.ingressClassName"),
        Column("Hosts", cell=_hosts),
        Column("Address", cell=_balancers),
        Column("Ports", cell=lambda obj: "80, 443" if cells.value(obj, "spec.tls") else "80"),
        AGE,
    ),
    "IngressClass": (
        NAME,
        _text("Controller", "spec.controller"),
        Column("Parameters", cell=_parameters),
        AGE,
    ),
    "NetworkPolicy": (NAME, Column("Pod-Selector", cell=_pod_selector), AGE),
    "PodDisruptionBudget": (
        NAME,
        _text("Min Available", "spec.minAvailable", "N/A"),
        _text("Max Unavailable", "spec.maxUnavailable", "N/A"),
        _number("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ),
    "Role": (NAME, _CREATED),
    "ClusterRole": (NAME, _CREATED),
    "RoleBinding": (NAME, Column("Role", cell=_role), AGE),
    "ClusterRoleBinding": (NAME, Column("Role", cell=_role), AGE),
    "PriorityClass": (
        NAME,
        _number("Value", "value"),
        _flag("Global-Default", "globalDefault"),
        AGE,
        _text("PreemptionPolicy", "preemptionPolicy", "PreemptLowerPriority"),
    ),
    "StorageClass": (
        NAME,
        _text("Provisioner", "provisioner"),
        _text("ReclaimPolicy", "reclaimPolicy", "Delete"),
        _text("VolumeBindingMode", "volumeBindingMode", "Immediate"),
        _flag("AllowVolumeExpansion", "allowVolumeExpansion"),
        AGE,
    ),
    "Lease": (NAME, _text("Holder", "spec.holderIdentity", ""), AGE),
    "ResourceQuota": (NAME, Column("Request", cell=_quota), AGE),
}
"""The columns by kind; further kinds have the name and the age."""
