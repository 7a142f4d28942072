"""What must hold for a Deployment, ReplicaSet or Pod before it is stored, so that kubectl hears of a mistake at once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headgate.errors import Cause, DecodeError, Invalid
from headgate.resources.decode import read
from headgate.resources.meta import Object
from headgate.resources.names import label_fault
from headgate.resources.workloads import Deployment, Pod, PodSpec, ReplicaSet, selects


def admit_workloads(new: Object, _old: Object | None, _view: object = None) -> Object:
    """Let a workload into the store when it can be run at all (type `objects.ports.Admit`). Raises Invalid."""
    causes = tuple(workload_causes(new))
    if causes:
        raise Invalid(*causes)
    return new


def workload_causes(obj: Object) -> Iterator[Cause]:
    """Yield what is wrong with a Deployment, ReplicaSet or Pod; nothing for other kinds."""
    check = _CHECKS.get((obj["apiVersion"], obj["kind"]))
    if check:
        try:
            yield from check(obj)
        except DecodeError as error:
            yield from error.causes


def _deployment(obj: Object) -> Iterator[Cause]:
    typed = read(obj, Deployment)
    check_selector(typed)
    if typed.spec.strategy.type not in ("RollingUpdate", "Recreate"):
        yield Cause("spec.strategy.type", f"{typed.spec.strategy.type!r} is not known; write RollingUpdate or Recreate")
    yield from _replicas(typed.spec.replicas)
    yield from _template(typed.spec.template)


def _replicaset(obj: Object) -> Iterator[Cause]:
    typed = read(obj, ReplicaSet)
    check_selector(typed)
    yield from _replicas(typed.spec.replicas)
    yield from _template(typed.spec.template)


def _pod(obj: Object) -> Iterator[Cause]:
    yield from _containers(read(obj, Pod).spec, "spec")


def _replicas(number: int) -> Iterator[Cause]:
    if number < 0:
        yield Cause("spec.replicas", "must be 0 or more")


def _template(template: Mapping[str, Any]) -> Iterator[Cause]:
    try:
        spec = read({"spec": template.get("spec") or {}}, Pod).spec
    except DecodeError as error:
        yield from (Cause(f"spec.template.{cause.field}", cause.message) for cause in error.causes)
        return
    yield from _containers(spec, "spec.template.spec")


def _containers(spec: PodSpec, where: str) -> Iterator[Cause]:
    """Check what would mix up two containers, or lead out of the pod's own directory: the names."""
    if not spec.containers:
        yield Cause(f"{where}.containers", "is missing: name at least one container")
    seen: set[str] = set()
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            place = f"{where}.{field}[{index}].name"
            if fault := label_fault(container.name):
                yield Cause(place, fault)
            elif container.name in seen:
                yield Cause(place, f"{container.name!r} is there twice; give each container a name of its own")
            seen.add(container.name)


_CHECKS: Mapping[tuple[str, str], Callable[[Object], Iterator[Cause]]] = {
    ("apps/v1", "Deployment"): _deployment,
    ("apps/v1", "ReplicaSet"): _replicaset,
    ("v1", "Pod"): _pod,
}


def check_selector(owner: ReplicaSet | Deployment) -> None:
    """Raise DecodeError when the selector misses the template's own pods: they would be made without end."""
    labels = (owner.spec.template.get("metadata") or {}).get("labels") or {}
    chosen = owner.spec.selector
    if not (chosen.match_labels or chosen.match_expressions) or not selects(chosen, labels):
        raise DecodeError(
            Cause(
                "spec.selector",
                "does not select the labels of spec.template; make spec.selector.matchLabels equal to them",
            )
        )
