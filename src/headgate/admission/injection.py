"""Which pods get a sidecar, decided once, when a pod is created, and written on it; edits of a live pod change nothing.

The pod's own label `headgate.dev/inject` counts first, then its annotation of that name, then a TLSConfig that selects it
(R77), then its namespace's label, then `headgate up --sidecars`. With `--sidecars none`, none of them counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from headgate.envoy.view import OUTBOUND_PORT
from headgate.errors import Cause, DecodeError, Invalid
from headgate.model.identities import is_gateway
from headgate.objects.ports import AdmissionStep, View
from headgate.resources.decode import read
from headgate.resources.meta import Key, Metadata, Object, part
from headgate.resources.pods import (
    APPLICATION_PORTS,
    EXCLUDED_PORTS,
    EXTERNAL,
    INJECT,
    PROCESS,
    PROCESS_ID,
    SIDECAR,
    parse_process_identity,
)
from headgate.resources.registry import TLS_CONFIG
from headgate.resources.workloads import Pod

InjectionMode = Literal["all", "labelled", "none"]
"""Which pods get a sidecar: those that don't opt out, those that opt in, or none."""
EXPLICIT = "explicit"
_TEMPLATED = {("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")}
_WRITTEN_HERE = (SIDECAR, APPLICATION_PORTS)  # a user's copy of a live pod has them too


class PodNamespace(NamedTuple):
    """What decides on a pod's sidecar besides the pod: the labels of its namespace, and the TLSConfigs there."""

    labels: Mapping[str, str]
    configs: Iterable[Object]


def inject_sidecars(mode: InjectionMode) -> AdmissionStep:
    """Return a hook for the store.

    It stands behind the hooks that complete pods and check them, what they say about sidecars too (`resources.pod_checks`).
    """

    def admit(new: Object, old: Object | None, view: View) -> Object:
        kind = (new["apiVersion"], new["kind"])
        if kind == ("v1", "Pod"):
            return _kept(new, old) if old else _created(new, mode, _around(view, new))
        if kind in _TEMPLATED:
            _check(_pod_of(new), mode, _around(view, new), where="spec.template.")
        return new

    return admit


def wants_sidecar(pod: Object, mode: InjectionMode, around: PodNamespace) -> bool:
    """Whether a pod that is created now gets a sidecar."""
    labels: Mapping[str, str] = part(pod["metadata"], "labels")
    annotations: Mapping[str, str] = part(pod["metadata"], "annotations")
    if mode == "none":
        return False
    if annotations.get(PROCESS) == EXTERNAL:  # there is nothing else that it is for
        return True
    if said := labels.get(INJECT) or annotations.get(INJECT):
        return said == "true"
    if any(_selects(config, labels) for config in around.configs):
        return True
    said = around.labels.get(INJECT)
    return said == "true" if said else mode == "all"


def _selects(config: Object, labels: Mapping[str, str]) -> bool:
    """Say whether a TLSConfig selects a pod of its namespace by its labels; one without a usable selector selects none."""
    wanted = part(part(config, "spec"), "selector").get("matchLabels")
    return isinstance(wanted, Mapping) and all(label in labels.items() for label in wanted.items())


def _created(pod: Object, mode: InjectionMode, around: PodNamespace) -> Object:
    _check(pod, mode, around, where="")
    annotations = {
        name: text for name, text in part(pod["metadata"], "annotations").items() if name not in _WRITTEN_HERE
    }
    if wants_sidecar(pod, mode, around):
        annotations[SIDECAR] = EXPLICIT
    return _annotated(pod, annotations)


def _kept(new: Object, old: Object) -> Object:
    """Keep what was decided: a `kubectl replace` with the manifest of old forgets it, and no edit changes it."""
    before, now = part(old["metadata"], "annotations"), part(new["metadata"], "annotations")
    fixed = [SIDECAR, PROCESS, PROCESS_ID, *([EXCLUDED_PORTS] if SIDECAR in before else [])]
    if APPLICATION_PORTS in before:
        fixed.append(APPLICATION_PORTS)
    message = "is decided when a pod is created: delete the pod, and create it as you want it"
    _refuse((Cause(_field(name), message) for name in fixed if now.get(name, before.get(name)) != before.get(name)), "")
    return _annotated(new, {**now, **{name: before[name] for name in fixed if name in before}})


def _check(pod: Object, mode: InjectionMode, around: PodNamespace, *, where: str) -> None:
    """Refuse what a user would else find out by waiting. Raises Invalid; `where` goes before the fields."""
    if wants_sidecar(pod, mode, around):
        _refuse(_sidecar_causes(pod), where)
    elif part(pod["metadata"], "annotations").get(PROCESS):
        message = "needs a sidecar, and this headgate runs with --sidecars none"
        _refuse([Cause(_field(PROCESS), message)], where)


def _sidecar_causes(pod: Object) -> Iterator[Cause]:
    try:
        typed = read(pod, Pod)
    except DecodeError as error:
        yield from error.causes
        return
    if is_gateway(typed.metadata.namespace, typed.spec.service_account_name):
        yield Cause("spec.serviceAccountName", "is who the node's gateway is; give the pod another ServiceAccount")
    for index, container in enumerate(typed.spec.containers):
        for number, port in enumerate(container.ports or ()):
            if port.container_port == OUTBOUND_PORT and port.protocol == "TCP":
                yield Cause(
                    f"spec.containers[{index}].ports[{number}].containerPort",
                    f"{OUTBOUND_PORT} is the sidecar's own; choose another port, "
                    f'or let the pod do without a sidecar: label it {INJECT}: "false"',
                )
    yield from _process_causes(typed.metadata)


def _process_causes(metadata: Metadata) -> Iterator[Cause]:
    process = metadata.annotations.get(PROCESS)
    if process not in {None, EXTERNAL}:
        yield Cause(_field(PROCESS), f"{process!r} is not known; write {EXTERNAL}, or leave it out")
    elif process and parse_process_identity(metadata) is None:
        yield Cause(_field(PROCESS_ID), "must name a process, as `headgate run` writes it: PID-START-BOOT")


def _refuse(causes: Any, where: str) -> None:
    found = [Cause(f"{where}{cause.field}", cause.message) for cause in causes]
    if found:
        raise Invalid(*found)


def _pod_of(obj: Object) -> Object:
    """Return the pod that a template makes, for reading only."""
    template = (obj.get("spec") or {}).get("template") or {}
    metadata = {**(template.get("metadata") or {}), "namespace": obj["metadata"].get("namespace", "")}
    return {"spec": {}, **{name: part for name, part in template.items() if part}, "metadata": metadata}


def _around(view: View, obj: Object) -> PodNamespace:
    namespace = obj["metadata"].get("namespace", "")
    found = view.get(Key("", "Namespace", "", namespace))
    configs = view.select(TLS_CONFIG.group, TLS_CONFIG.kind, namespace)
    return PodNamespace(labels=part(found["metadata"], "labels") if found else {}, configs=configs)


def _field(annotation: str) -> str:
    return f"metadata.annotations.{annotation}"


def _annotated(pod: Object, annotations: Mapping[str, str]) -> Object:
    if annotations == part(pod["metadata"], "annotations"):
        return pod
    metadata = {name: part for name, part in pod["metadata"].items() if name != "annotations"}
    return {**pod, "metadata": metadata | ({"annotations": dict(annotations)} if annotations else {})}
