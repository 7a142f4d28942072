"""Adds the containers, volumes and variables of Sidecars to a new pod (R79, D18).

Sidecars apply in the order of their names. On a conflict of names, the pod's own item stays, and an annotation names
the conflict. Another annotation names the Sidecars, so that their statuses say which pods have them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headgate.errors import DecodeError
from headgate.resources.core.pod_metadata import ADDED, CONFLICTS, PROCESS
from headgate.resources.decode import read
from headgate.resources.mesh.sidecar import Sidecar
from headgate.resources.meta import Object, part
from headgate.resources.selectors import selects

_WRITTEN = (ADDED, CONFLICTS)
Items = list[Mapping[str, Any]]


def with_sidecars(pod: Object, sidecars: Iterable[Object]) -> Object:
    """Return a pod with everything that the Sidecars of its namespace add to it.

    A pod of `headgate run` stays unchanged, because no runtime starts containers for it.
    """
    annotations = {name: text for name, text in part(pod["metadata"], "annotations").items() if name not in _WRITTEN}
    chosen = (
        [] if PROCESS in annotations else sorted(selecting(pod, sidecars), key=lambda sidecar: sidecar.metadata.name)
    )
    spec, conflicts = dict(pod["spec"]), list[str]()
    own = [container["name"] for container in spec.get("containers") or ()]
    for sidecar in chosen:
        conflicts += [f"{sidecar.metadata.name}/{conflict}" for conflict in _add(spec, own, sidecar)]
    if chosen:
        annotations[ADDED] = ",".join(f"{sidecar.metadata.name}@{sidecar.metadata.generation}" for sidecar in chosen)
    if conflicts:
        annotations[CONFLICTS] = ",".join(conflicts)
    metadata = {name: value for name, value in pod["metadata"].items() if name != "annotations"}
    return {**pod, "metadata": metadata | ({"annotations": annotations} if annotations else {}), "spec": spec}


def selecting(pod: Object, sidecars: Iterable[Object]) -> Iterator[Sidecar]:
    """Yield the Sidecars that select a pod. A malformed Sidecar selects no pod."""
    labels = part(pod["metadata"], "labels")
    for obj in sidecars:
        try:
            typed = read(obj, Sidecar)
        except DecodeError:
            continue
        if selects(typed.spec.selector, labels):
            yield typed


def _add(spec: dict[str, Any], own: Iterable[str], sidecar: Sidecar) -> Iterator[str]:
    """Add a Sidecar to the spec of a pod, and yield its conflicts. `own` has the application's containers."""
    additions = sidecar.spec
    containers: Items = [*(spec.get("containers") or ())]
    initial: Items = [*(spec.get("initContainers") or ())]
    volumes: Items = [*(spec.get("volumes") or ())]
    for index, container in enumerate(containers):
        if container["name"] in own and additions.env:
            env: Items = [*(container.get("env") or ())]
            for conflict in _extend(env, additions.env, env):
                yield f"env/{container['name']}/{conflict}"
            containers[index] = {**container, "env": env}
    for conflict in _extend(initial, additions.init_containers, [*containers, *initial]):
        yield f"initContainers/{conflict}"
    for conflict in _extend(containers, additions.containers, [*containers, *initial]):
        yield f"containers/{conflict}"
    for conflict in _extend(volumes, additions.volumes, volumes):
        yield f"volumes/{conflict}"
    changed = {"initContainers": initial, "containers": containers, "volumes": volumes}
    spec |= {field: items for field, items in changed.items() if items}


def _extend(items: Items, additions: Iterable[Mapping[str, Any]], present: Iterable[Mapping[str, Any]]) -> list[str]:
    """Append the additions whose names are free, and return the other names. An equal item is no conflict."""
    names = {entry.get("name"): entry for entry in present}
    items += [addition for addition in additions if addition["name"] not in names]
    return [addition["name"] for addition in additions if names.get(addition["name"], addition) != addition]
