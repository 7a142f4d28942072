"""Adds transparent sidecars to manifests of workloads, as the webhook adds them to pods."""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.admission.injection import PodNamespace, decision_message, sidecar_causes
from headgate.admission.proxy_users import user_of_manifest
from headgate.admission.sidecar_containers import (
    CONTAINER,
    OWN_PORTS,
    SidecarOptions,
    container_names,
    decide_transparent,
    with_transparent_sidecar,
)
from headgate.errors import Cause
from headgate.resources.core.pod import pod_causes
from headgate.resources.core.pod_metadata import template_causes
from headgate.resources.meta import Object, part
from headgate.resources.pod_templates import pod_of_template, template_path
from headgate.resources.schema.catalog import schemas
from headgate.resources.schema.check import check_schema

_ANYWHERE = PodNamespace(labels={}, configs=())
"""The namespace of a manifest: its labels and TLSConfigs are unknown, so only the pod itself can opt out."""


class Injected(NamedTuple):
    """The result for one object. `skipped` says why its pods get no sidecar; it is empty for objects without pods.

    If there are `causes`, `object` is the object without changes.
    """

    object: Object
    skipped: str = ""
    causes: tuple[Cause, ...] = ()


def inject_manifest(obj: Object, options: SidecarOptions) -> Injected:
    """Return an object whose pods have a sidecar: a Pod, or a workload with a pod template.

    Objects of other kinds, and pods that have a sidecar or opt out, are returned unchanged.
    """
    if (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Pod"):
        return _inject(obj, "", pod={**obj, "metadata": part(obj, "metadata")}, options=options)
    if path := template_path(obj):
        return _inject(obj, path, pod=pod_of_template(obj), options=options)
    return Injected(obj)


def _inject(obj: Object, path: str, *, pod: Object, options: SidecarOptions) -> Injected:
    """Return an object with a sidecar in its pod, which is at a path; empty if the object is the pod."""
    check = template_causes if path else pod_causes
    where = f"{path}." if path else ""
    if causes := [Cause(f"{where}{cause.field}", cause.message) for cause in _structure(pod)]:
        return Injected(obj, causes=tuple(causes))
    if CONTAINER in container_names(pod):
        return Injected(obj, "it has a sidecar already")
    decision = decide_transparent(pod, "all", _ANYWHERE)
    ports = sidecar_causes(pod, OWN_PORTS) if decision.injected else ()
    if causes := [*check(obj), *(Cause(f"{where}{cause.field}", cause.message) for cause in ports)]:
        return Injected(obj, causes=tuple(causes))
    if not decision.injected:
        return Injected(obj, decision_message(decision, part(pod, "metadata").get("namespace", "")))
    changed = with_transparent_sidecar(pod, options, user_of_manifest(obj))
    return Injected(_replaced(obj, path.split(".") if path else [], changed))


def _structure(pod: Object) -> Iterator[Cause]:
    """Yield the fields of a pod whose types are wrong. Unknown fields are no mistakes, as in the API."""
    checked = check_schema({"metadata": pod["metadata"], "spec": pod.get("spec")}, schemas()["", "v1", "Pod"])
    yield from (cause for cause in checked.causes if cause.field not in checked.unknown)


def _replaced(obj: Object, path: list[str], pod: Object) -> Object:
    """Return an object with the annotations and the spec of a pod at a path."""
    if path:
        return {**obj, path[0]: _replaced(part(obj, path[0]), path[1:], pod)}
    return {
        **obj,
        "metadata": {**part(obj, "metadata"), "annotations": pod["metadata"]["annotations"]},
        "spec": pod["spec"],
    }
