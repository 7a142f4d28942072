"""Sidecars (R79, D18): containers, volumes and variables that are added to pods."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from headgate.errors import Cause
from headgate.kinds import MESH, names_of
from headgate.resources.columns import AGE, NAME, STATE, Column
from headgate.resources.core.pod_fields import container_field_causes, pod_field_causes, selector_causes
from headgate.resources.core.pod_spec import Container, PodSpec
from headgate.resources.kind import MESH_CATEGORY, Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, label_fault, part, rows
from headgate.resources.schema.builders import Schema, kind, listing, record, text
from headgate.resources.schema.check import check_schema
from headgate.resources.schema.declared import (
    Field,
    FieldRule,
    StatusPart,
    broken_rules,
    declared_schema,
    rule_causes,
    with_rules,
)
from headgate.resources.schema.published import pod_schema
from headgate.resources.selectors import LabelSelector
from headgate.resources.status import ObjectStatus, status_schema

_CONTAINERS = ("initContainers", "containers")
_ADDITIONS = ("containers", "initContainers", "volumes", "env")
RESERVED_CONTAINERS = ("headgate-redirect", "headgate-sidecar")
RESERVED_VOLUMES = ("headgate", "headgate-secrets")


def _not_named(name: str, message: str) -> FieldRule:
    """Return the rule that an addition does not have a name."""
    return FieldRule("name", message, cel=f"self.name != '{name}'", broken=lambda row: row.get("name") == name)


_NAMED = (_not_named("", "is empty: choose a name"),)


def _not_reserved(names: Iterable[str]) -> tuple[FieldRule, ...]:
    """Return the rules on the names of additions, of which some are headgate's own."""
    return (
        *_NAMED,
        *(_not_named(name, f"must not be {name}, which is headgate's own; choose another name") for name in names),
    )


_CONTAINER_RULES = _not_reserved(RESERVED_CONTAINERS)
_VOLUME_RULES = _not_reserved(RESERVED_VOLUMES)


def _additions(description: str, element: str, rules: tuple[FieldRule, ...] = _NAMED) -> Schema:
    """Return the schema for a list of named additions, with the rules on their names."""
    named = with_rules(record(element, "name", name=text("The name.")), rules)
    return listing(description, {**named, "x-kubernetes-preserve-unknown-fields": True}, key="name")


class SidecarSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Sidecar: the selected pods, and the items that are added to them, with all of their fields.

    The schema of Pods has the fields of containers and volumes; `sidecar_causes` checks them with that schema.
    """

    __rules__ = (
        FieldRule(
            "",
            "adds nothing: write containers, initContainers, volumes or env",
            cel=" || ".join(f"has(self.{name}) && size(self.{name}) > 0" for name in _ADDITIONS),
            broken=lambda spec: not any(spec.get(name) for name in _ADDITIONS),
        ),
    )

    selector: Annotated[
        LabelSelector,
        Field("The selector of pods in the Sidecar's own namespace; {} selects all."),
    ]
    containers: Annotated[
        tuple[dict[str, Any], ...],
        Field(
            schema=_additions(
                "Containers that run beside the application.", "A container, as in a pod.", _CONTAINER_RULES
            )
        ),
    ] = ()
    init_containers: Annotated[
        tuple[dict[str, Any], ...],
        Field(
            schema=_additions(
                "Containers that end before the application starts, after those of the pod.",
                "A container, as in a pod.",
                _CONTAINER_RULES,
            )
        ),
    ] = ()
    volumes: Annotated[
        tuple[dict[str, Any], ...],
        Field(schema=_additions("Volumes of the pod, for these containers.", "A volume, as in a pod.", _VOLUME_RULES)),
    ] = ()
    env: Annotated[
        tuple[dict[str, Any], ...],
        Field(schema=_additions("Variables for the containers of the application.", "A variable, as in a container.")),
    ] = ()


class Sidecar(Resource, frozen=True, kw_only=True):
    """A Sidecar. It applies to the pods of its namespace that its selector selects."""

    spec: SidecarSpec


class InjectedPodCounts(StatusPart, frozen=True, kw_only=True):
    """The numbers of pods that a Sidecar selects."""

    total: Annotated[int, Field("The number of pods.")]
    injected: Annotated[int, Field("The number of pods that have the current generation.")]
    restart_needed: Annotated[int, Field("The number of pods that get the current generation when they are replaced.")]
    conflicts: Annotated[int, Field("The number of pods with a name conflict.")]


class SidecarStatus(ObjectStatus, frozen=True, kw_only=True):
    """`status` of a Sidecar."""

    pods: Annotated[InjectedPodCounts | None, Field("The selected pods.")] = None


_UNSELECTED = "is missing: select pods by their labels, or write {} for all pods of the namespace"


def sidecar_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a Sidecar. A missing selector is a mistake, and does not select all pods."""
    spec = part(obj, "spec")
    if isinstance(obj.get("spec"), Mapping):
        if spec.get("selector") is None:
            yield Cause("spec.selector", _UNSELECTED)
        yield from rule_causes(SidecarSpec, spec, "spec")
    yield from selector_causes(part(spec, "selector"), "spec.selector")
    yield from _typed(spec)
    seen: dict[str, str] = {}
    for field in _CONTAINERS:
        yield from _names(spec, field, seen, _CONTAINER_RULES)
    yield from _names(spec, "volumes", {}, _VOLUME_RULES)
    yield from _names(spec, "env", {}, _NAMED)
    yield from _mounts(spec)
    yield from _fields(spec)


def _typed(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield a mistake for each field whose type differs from the schema of Pods.

    As in pods, unknown fields are allowed.
    """
    yield from _pod_causes({name: spec[name] for name in (*_CONTAINERS, "volumes") if spec.get(name)})
    if spec.get("env"):
        for cause in _pod_causes({"containers": [{"env": spec["env"]}]}):
            yield Cause(cause.field.replace("spec.containers[0].env", "spec.env", 1), cause.message)


def _pod_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    checked = check_schema({"spec": spec}, pod_schema(), required=False)
    yield from (cause for cause in checked.causes if cause.field not in checked.unknown)


def _names(spec: Mapping[str, Any], field: str, seen: dict[str, str], rules: tuple[FieldRule, ...]) -> Iterator[Cause]:
    for index, row in rows(spec.get(field)):
        name, where = row.get("name"), f"spec.{field}[{index}].name"
        broken = tuple(broken_rules(rules, row, f"spec.{field}[{index}]"))
        yield from broken
        if not isinstance(name, str) or broken:
            continue
        if name in seen:
            yield Cause(where, f"{name!r} is the name of {seen[name]} too; choose another name")
        elif field != "env" and (fault := label_fault(name)):
            yield Cause(where, fault)
        seen.setdefault(name, f"spec.{field}[{index}]")


def _fields(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield the mistakes in containers, volumes and variables that a pod can't have either. `_typed` has checked their types."""
    added = {name: spec[name] for name in (*_CONTAINERS, "volumes") if spec.get(name)}
    try:
        pod = msgspec.convert(added, PodSpec)
        variables = msgspec.convert({"name": "", "env": spec.get("env")}, Container)
    except msgspec.ValidationError:
        return
    names = {f"spec.{field}[{index}].name" for field in added for index, _ in rows(spec[field])}
    yield from (cause for cause in pod_field_causes(pod, "spec") if cause.field not in names)
    yield from container_field_causes(variables, "spec")


def _mounts(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield a mistake for each mount of a volume that is not in the Sidecar; the pod's own volumes are unknown here."""
    volumes = {volume.get("name") for _, volume in rows(spec.get("volumes"))}
    for field in _CONTAINERS:
        for index, container in rows(spec.get(field)):
            for number, mount in rows(container.get("volumeMounts")):
                name = mount.get("name")
                if isinstance(name, str) and name not in volumes:
                    where = f"spec.{field}[{index}].volumeMounts[{number}].name"
                    yield Cause(where, f"{name!r} is not the name of a volume in spec.volumes; add the volume")


def sidecar() -> Schema:
    """Return the schema of a Sidecar (R79, D18)."""
    spec = declared_schema(SidecarSpec, "The selected pods, and what they get in addition.")
    status = status_schema(SidecarStatus, "Sidecar")
    return kind("Adds containers, for example of a monitoring agent, to the selected pods.", spec=spec, status=status)


KIND = Kind(
    names_of("Sidecar", MESH),
    versions=("v1beta1",),
    status=True,
    shape=Sidecar,
    schema=lambda _group, _version: sidecar(),
    checks=sidecar_causes,
    columns=(
        NAME,
        Column("Pods", ".status.pods.total", "The number of selected pods.", "integer"),
        Column("Injected", ".status.pods.injected", "The number of pods that have the current generation.", "integer"),
        *STATE,
        AGE,
    ),
    recorded=True,
    categories=(MESH_CATEGORY,),
    ready_by=ReadyBy.GENERATION,
)
