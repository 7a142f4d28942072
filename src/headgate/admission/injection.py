"""Sidecar injection: decide which pods get a sidecar, and write the decision into an annotation.

The decision is made when a pod is created, and later edits of the pod do not change it. The first source that is set
determines the decision: the pod's label `headgate.dev/inject`, the pod's annotation of that name, a TLSConfig that
selects the pod (R77), the namespace's label of that name, `headgate up --sidecars`. With `--sidecars none`, no pod gets
a sidecar.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from headgate.admission.sidecar_merge import with_sidecars
from headgate.admission.workloads import DEFAULTERS
from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.errors import Cause, DecodeError, Invalid
from headgate.model.identities import is_gateway
from headgate.objects.ports import AdmissionStep, View
from headgate.resources.decode import read
from headgate.resources.meta import Key, Metadata, Object, part
from headgate.resources.pod_templates import pod_of_template, template_path
from headgate.resources.pods import (
    ADDED,
    APPLICATION_PORTS,
    CONFLICTS,
    EXCLUDED_PORTS,
    EXTERNAL,
    INJECT,
    INJECTED,
    PROCESS,
    PROCESS_ID,
    SIDECAR,
    parse_process_identity,
)
from headgate.resources.registry import SIDECAR as SIDECAR_KIND
from headgate.resources.registry import TLS_CONFIG
from headgate.resources.workloads import Pod

InjectionMode = Literal["all", "labelled", "none"]
"""The pods that get a sidecar: `all` except pods that opt out, only `labelled` pods that opt in, or `none`."""
EXPLICIT = "explicit"
_WRITTEN_HERE = (SIDECAR, APPLICATION_PORTS, ADDED, CONFLICTS)  # removed on create: a copy of an existing pod has them


Setting = Literal[
    "Option",
    "HeadgateRun",
    "PodLabel",
    "PodAnnotation",
    "TLSConfig",
    "NamespaceLabel",
    "NamespaceName",
    "HostNetwork",
    "SystemNamespace",
]
"""The setting that decides whether a pod gets a sidecar; `Option` is `--sidecars`."""


_REASONS = {
    "HeadgateRun": "`headgate run` created the pod, and its pods always have a sidecar",
    "HostNetwork": "the pod uses the network of its node (spec.hostNetwork), which the redirection would change",
    "NamespaceLabel": 'the label {key} of the namespace {namespace} is "{value}"',
    "NamespaceName": "the namespace {namespace} has no label {value}, by which the webhooks select the mesh's namespaces",
    "PodAnnotation": 'the pod\'s annotation {key} is "{value}"',
    "PodLabel": 'the pod\'s label {key} is "{value}"',
    "SystemNamespace": "pods of the namespace {namespace} never get a sidecar",
    "TLSConfig": "the TLSConfig {value} selects the pod",
}
_OPTIONS = {
    "all": "headgate runs with --sidecars all, and neither the pod nor its namespace opts out",
    "labelled": "no label, annotation or TLSConfig requests one, and headgate runs with --sidecars labelled",
    "none": "headgate runs with --sidecars none",
}


class Decision(NamedTuple):
    """Whether a pod gets a sidecar when it is created now, and the setting that decides it.

    `value` is the value of a label or annotation, the name of a TLSConfig, the injection mode, or the name of a missing label.
    """

    by: Setting
    value: str = ""
    injected: bool = False


class PodNamespace(NamedTuple):
    """The properties of a pod's namespace that injection uses: the namespace's labels, and the TLSConfigs and Sidecars in it."""

    labels: Mapping[str, str]
    configs: Iterable[Object]
    sidecars: Iterable[Object] = ()


def inject_sidecars(mode: InjectionMode) -> AdmissionStep:
    """Return the admission step that injects sidecars. It must run after the defaults and checks of pods."""

    def admit(new: Object, old: Object | None, view: View) -> Object:
        kind = (new["apiVersion"], new["kind"])
        if kind == ("v1", "Pod"):
            return _kept(new, old) if old else _created(new, mode, pod_namespace(view, new))
        if template_path(new):
            _check(pod_of_template(new), mode, pod_namespace(view, new), where=f"{template_path(new)}.")
        return new

    return admit


def decide(pod: Object, mode: InjectionMode, around: PodNamespace) -> Decision:
    """Decide whether a pod gets a sidecar when it is created now."""
    labels: Mapping[str, str] = part(pod["metadata"], "labels")
    annotations: Mapping[str, str] = part(pod["metadata"], "annotations")
    if mode == "none":
        return Decision("Option", mode, injected=False)
    if annotations.get(PROCESS) == EXTERNAL:  # `headgate run` creates such a pod to get a sidecar for its program
        return Decision("HeadgateRun", injected=True)
    own: tuple[tuple[Setting, Mapping[str, str]], ...] = (("PodLabel", labels), ("PodAnnotation", annotations))
    for by, words in own:
        if said := words.get(INJECT):
            return Decision(by, said, injected=said in INJECTED)
    if config := next((config for config in around.configs if _selects(config, labels)), None):
        return Decision("TLSConfig", part(config, "metadata").get("name", ""), injected=True)
    if said := around.labels.get(INJECT):
        return Decision("NamespaceLabel", said, injected=said in INJECTED)
    return Decision("Option", mode, injected=mode == "all")


def decision_message(decision: Decision, namespace: str) -> str:
    """Return the reason for a decision about a pod of a namespace, as a clause for users."""
    form = _OPTIONS[decision.value] if decision.by == "Option" else _REASONS[decision.by]
    return form.format(key=INJECT, value=decision.value, namespace=namespace)


def _selects(config: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a TLSConfig selects a pod of its namespace. A malformed selector selects no pod."""
    selector = part(config, "spec").get("selector")
    wanted = selector.get("matchLabels", {}) if isinstance(selector, Mapping) else None  # snapshots omit empty fields
    return isinstance(wanted, Mapping) and all(label in labels.items() for label in wanted.items())


def _created(pod: Object, mode: InjectionMode, around: PodNamespace) -> Object:
    _check(pod, mode, around, where="")
    annotations = {
        name: text for name, text in part(pod["metadata"], "annotations").items() if name not in _WRITTEN_HERE
    }
    if decide(pod, mode, around).injected:
        annotations[SIDECAR] = EXPLICIT
        return DEFAULTERS["v1", "Pod"](with_sidecars(_annotated(pod, annotations), around.sidecars))
    return _annotated(pod, annotations)


def _kept(new: Object, old: Object) -> Object:
    """Restore injection annotations that an update of a pod removes, and reject an update that changes them.

    `kubectl replace` removes these annotations, because the user's manifest does not contain them. headgate itself adds ports
    to a pod whose processes have not started: Services of these ports may be newer than the pod.
    """
    before, now = part(old["metadata"], "annotations"), part(new["metadata"], "annotations")
    fixed = [SIDECAR, PROCESS, PROCESS_ID, *([EXCLUDED_PORTS] if SIDECAR in before else [])]
    fixed += [name for name in (APPLICATION_PORTS, ADDED, CONFLICTS) if name in before]
    if _only_adds_ports(before.get(APPLICATION_PORTS, ""), now.get(APPLICATION_PORTS, "")) and not _has_started(old):
        fixed = [name for name in fixed if name != APPLICATION_PORTS]
    message = "can't be changed after the pod is created: delete the pod, and create it again with the new value"
    _refuse((Cause(_field(name), message) for name in fixed if now.get(name, before.get(name)) != before.get(name)), "")
    return _annotated(new, {**now, **{name: before[name] for name in fixed if name in before}})


def _only_adds_ports(before: str, now: str) -> bool:
    """Return whether a text of the annotation with ports has all pairs of an earlier text."""
    return set(before.split(",")) <= set(now.split(","))


def _has_started(pod: Object) -> bool:
    """Return whether a container of a pod runs or has run."""
    statuses = part(pod, "status").get("containerStatuses") or ()
    return any(part(status, "state").keys() & {"running", "terminated"} for status in statuses)


def _check(pod: Object, mode: InjectionMode, around: PodNamespace, *, where: str) -> None:
    """Check a pod or a pod template. Raises Invalid with field paths that begin with `where`."""
    if decide(pod, mode, around).injected:
        _refuse(sidecar_causes(pod, (OUTBOUND_PORT,)), where)
    elif part(pod["metadata"], "annotations").get(PROCESS):
        message = "needs a sidecar, and this headgate runs with --sidecars none"
        _refuse([Cause(_field(PROCESS), message)], where)


def sidecar_causes(pod: Object, own_ports: Container[int]) -> Iterator[Cause]:
    """Yield the mistakes of a pod that gets a sidecar, which listens on `own_ports`."""
    try:
        typed = read(pod, Pod)
    except DecodeError as error:
        yield from error.causes
        return
    if is_gateway(typed.metadata.namespace, typed.spec.service_account_name):
        yield Cause(
            "spec.serviceAccountName",
            "is the ServiceAccount of the node's gateway; give the pod another ServiceAccount",
        )
    for index, container in enumerate(typed.spec.containers):
        for number, port in enumerate(container.ports or ()):
            if port.container_port in own_ports and port.protocol == "TCP":
                yield Cause(
                    f"spec.containers[{index}].ports[{number}].containerPort",
                    f"{port.container_port} is the sidecar's own port; choose another port, "
                    f'or disable the sidecar with the label {INJECT}: "false"',
                )
    for excluded in typed.metadata.annotations.get(EXCLUDED_PORTS, "").split(","):
        if excluded.isdecimal() and int(excluded) in own_ports:
            yield Cause(
                _field(EXCLUDED_PORTS), f"{excluded} is the sidecar's own port, which can't be excluded; remove it"
            )
    yield from _process_causes(typed.metadata)


def _process_causes(metadata: Metadata) -> Iterator[Cause]:
    process = metadata.annotations.get(PROCESS)
    if process not in {None, EXTERNAL}:
        yield Cause(_field(PROCESS), f"must be {EXTERNAL}, not {process!r}; or leave it out")
    elif process and parse_process_identity(metadata) is None:
        yield Cause(_field(PROCESS_ID), "must name a process, as `headgate run` writes it: PID-START-BOOT")


def _refuse(causes: Any, where: str) -> None:
    found = [Cause(f"{where}{cause.field}", cause.message) for cause in causes]
    if found:
        raise Invalid(*found)


def pod_namespace(view: View, obj: Object) -> PodNamespace:
    """Return the properties of the namespace of a pod, or of a workload, that injection uses."""
    namespace = obj["metadata"].get("namespace", "")
    found = view.get(Key("", "Namespace", "", namespace))
    configs, sidecars = (view.select(kind.group, kind.kind, namespace) for kind in (TLS_CONFIG, SIDECAR_KIND))
    labels = part(found["metadata"], "labels") if found else {}
    return PodNamespace(labels=labels, configs=configs, sidecars=sidecars)


def _field(annotation: str) -> str:
    return f"metadata.annotations.{annotation}"


def _annotated(pod: Object, annotations: Mapping[str, str]) -> Object:
    if annotations == part(pod["metadata"], "annotations"):
        return pod
    metadata = {name: part for name, part in pod["metadata"].items() if name != "annotations"}
    return {**pod, "metadata": metadata | ({"annotations": dict(annotations)} if annotations else {})}
