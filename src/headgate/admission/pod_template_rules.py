"""Checks of the pods in pod templates, which every kind of workload has."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause, DecodeError
from headgate.resources.core.pod_fields import pod_field_causes, template_metadata_causes
from headgate.resources.core.pod_spec import Pod, PodSpec
from headgate.resources.decode import read
from headgate.resources.meta import label_fault


def template_causes(template: Mapping[str, Any], where: str = "spec.template") -> Iterator[Cause]:
    """Yield the mistakes in a pod template at the path `where`."""
    try:
        spec = read({"spec": template.get("spec") or {}}, Pod).spec
    except DecodeError as error:
        yield from (Cause(f"{where}.{cause.field}", cause.message) for cause in error.causes)
        return
    yield from container_causes(spec, f"{where}.spec")
    yield from template_metadata_causes(template, where)
    yield from pod_field_causes(spec, f"{where}.spec")


def container_causes(spec: PodSpec, where: str) -> Iterator[Cause]:
    """Check the names of containers: they must be unique, and usable as directory names."""
    if not spec.containers:
        yield Cause(f"{where}.containers", "is missing: name at least one container")
    seen: set[str] = set()
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            place = f"{where}.{field}[{index}].name"
            if fault := label_fault(container.name):
                yield Cause(place, fault)
            elif container.name in seen:
                yield Cause(
                    place, f"{container.name!r} is the name of two containers; give each container its own name"
                )
            seen.add(container.name)
