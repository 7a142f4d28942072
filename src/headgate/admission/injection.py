"""Sidecar injection: decide which pods get a sidecar, and write the decision into an annotation.

The decision is made when a pod is created, and later edits of the pod do not change it. The first source that is set
determines the decision: the pod's label `headgate.dev/inject`, the pod's annotation of that name, a TLSConfig that
selects the pod (R77), the namespace's label of that name, `headgate up --sidecars`. With `--sidecars none`, no pod gets
a sidecar.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from headgate.admission.sidecar_merge import with_sidecars
from headgate.admission.workloads import DEFAULTERS
from headgate.envoy.node_ids import INBOUND_PORT, OUTBOUND_PORT, PROBE_PORT
from headgate.errors import Cause, DecodeError, Invalid
from headgate.model.identities import is_gateway
from headgate.objects.ports import View
from headgate.options import InjectionMode
from headgate.resources.core.pod import parse_process_identity
from headgate.resources.core.pod_metadata import (
    ADDED,
    APPLICATION_PORTS,
    CONFLICTS,
    EXCLUDED_PORTS,
    EXTERNAL,
    INJECT,
    INJECTED,
    PROCESS,
    PROCESS_ID,
    REVISION,
    SIDECAR,
)
from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.resources.inspect import InjectionSetting
from headgate.resources.meta import Key, Metadata, Object, part
from headgate.resources.registry import SIDECAR as SIDECAR_KIND
from headgate.resources.registry import TLS_CONFIG
from headgate.resources.selectors import LabelSelector, selects

EXPLICIT: Literal["explicit"] = "explicit"
TRANSPARENT: Literal["transparent"] = "transparent"
INJECT_LABELED = "/inject/labeled-namespace"
"""The path of the webhook for pods of namespaces that an API server has selected by the label `INJECT`."""
OF_REVISIONS = "/revision"
"""Ends the paths of the webhooks for namespaces that an API server has selected because they have the label `REVISION`."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"  # API servers since Kubernetes 1.21 label each namespace with its name
_WRITTEN_HERE = (SIDECAR, APPLICATION_PORTS, ADDED, CONFLICTS)  # removed on create: a copy of an existing pod has them


_REASONS = {
    "HeadgateRun": "`headgate run` created the pod, and its pods always have a sidecar",
    "HostNetwork": "the pod uses the network of its node (spec.hostNetwork), which the redirection would change",
    "NamespaceLabel": 'the label {key} of the namespace {namespace} is "{value}"',
    "NamespaceName": "the namespace {namespace} has no label {value}, by which the webhooks select the mesh's namespaces",
    "PodAnnotation": 'the pod\'s annotation {key} is "{value}"',
    "PodLabel": 'the pod\'s label {key} is "{value}"',
    "Revision": "the label headgate.dev/rev of the namespace {namespace} names the revision {value}, which injects its sidecars",
    "SystemNamespace": "pods of the namespace {namespace} never get a sidecar",
    "TLSConfig": "the TLSConfig {value} selects the pod",
}
_OPTIONS = {
    "all": "headgate runs with --sidecars all, and neither the pod nor its namespace opts out",
    "labelled": "no label, annotation or TLSConfig requests one, and headgate runs with --sidecars labelled",
    "none": "headgate runs with --sidecars none",
}


class InjectionDecision(NamedTuple):
    """Whether a pod gets a sidecar when it is created now, and the setting that decides it.

    `value` is the value of a label or annotation, the name of a TLSConfig, the injection mode, or the name of a missing label.
    """

    by: InjectionSetting
    value: str = ""
    injected: bool = False


class PodNamespace(NamedTuple):
    """The properties of a pod's namespace that injection uses: its labels and annotations, and the TLSConfigs and Sidecars in it."""

    labels: Mapping[str, str]
    configs: Iterable[Object]
    sidecars: Iterable[Object] = ()
    annotations: Mapping[str, str] = {}


class Sidecars(NamedTuple):
    """How a host adds sidecars to pods, of the kind `capture`, which listen on `own_ports`.

    `decide` says whether a pod gets one. `create` returns a new pod with it, or the pod without it if it is not injected.
    `keep` returns an update of a pod with what injection has written, or raises Invalid. `is_complete` says that a pod has
    everything already. `warn` yields warnings about the sidecar that a new pod gets. `image_of` returns the image of the sidecars that
    a revision injects, empty for an unknown one.
    """

    decide: Callable[[Object, PodNamespace], InjectionDecision]
    capture: Literal["explicit", "transparent"]
    own_ports: Container[int]
    create: Callable[[Object, PodNamespace, bool], Object]
    keep: Callable[[Object, Object], Object] = lambda new, _old: new
    is_complete: Callable[[Object], bool] = lambda _pod: False
    warn: Callable[[Object, PodNamespace], Iterable[str]] = lambda _pod, _around: ()
    image_of: Callable[[str], str] = lambda _revision: ""


def explicit_sidecars(mode: InjectionMode) -> Sidecars:
    """Return how one machine adds sidecars to pods that share its network."""
    create = partial(_created, capture_of=lambda _pod: EXPLICIT)
    return Sidecars(lambda pod, around: decide(pod, mode, around), EXPLICIT, (OUTBOUND_PORT,), create, _kept)


def sidecars_in_networks(mode: InjectionMode) -> Sidecars:
    """Return how one machine adds sidecars to pods with networks of their own."""
    create = partial(_created, capture_of=lambda pod: EXPLICIT if shares_network(pod) else TRANSPARENT)
    ports = (OUTBOUND_PORT, INBOUND_PORT, PROBE_PORT)
    return Sidecars(lambda pod, around: decide(pod, mode, around), TRANSPARENT, ports, create, _kept)


def shares_network(pod: Object) -> bool:
    """Return whether a pod of one machine is in the machine's network, even if pods have networks of their own."""
    external = part(pod["metadata"], "annotations").get(PROCESS) == EXTERNAL
    return external or bool(part(pod, "spec").get("hostNetwork"))


def decide(pod: Object, mode: InjectionMode, around: PodNamespace) -> InjectionDecision:
    """Decide whether a pod gets a sidecar when it is created now."""
    labels: Mapping[str, str] = part(pod["metadata"], "labels")
    annotations: Mapping[str, str] = part(pod["metadata"], "annotations")
    if mode == "none":
        return InjectionDecision("Option", mode, injected=False)
    if annotations.get(PROCESS) == EXTERNAL:  # `headgate run` creates such a pod to get a sidecar for its program
        return InjectionDecision("HeadgateRun", injected=True)
    own: tuple[tuple[InjectionSetting, Mapping[str, str]], ...] = (("PodLabel", labels), ("PodAnnotation", annotations))
    for by, words in own:
        if said := words.get(INJECT):
            return InjectionDecision(by, said, injected=said in INJECTED)
    if config := next((config for config in around.configs if _selects(config, labels)), None):
        return InjectionDecision("TLSConfig", part(config, "metadata").get("name", ""), injected=True)
    if said := around.labels.get(INJECT):
        return InjectionDecision("NamespaceLabel", said, injected=said in INJECTED)
    return InjectionDecision("Option", mode, injected=mode == "all")


def decision_message(decision: InjectionDecision, namespace: str) -> str:
    """Return the reason for a decision about a pod of a namespace, as a clause for users."""
    form = _OPTIONS[decision.value] if decision.by == "Option" else _REASONS[decision.by]
    return form.format(key=INJECT, value=decision.value, namespace=namespace)


def _selects(config: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a TLSConfig selects a pod of its namespace. A malformed selector selects no pod."""
    selector = part(config, "spec").get("selector")
    try:
        return selects(msgspec.convert(selector, LabelSelector), labels)  # snapshots omit empty fields
    except msgspec.ValidationError:
        return False


def _created(
    pod: Object,
    around: PodNamespace,
    injected: bool,  # noqa: FBT001 - a function of `Sidecars`
    *,
    capture_of: Callable[[Object], str],
) -> Object:
    annotations = {
        name: text for name, text in part(pod["metadata"], "annotations").items() if name not in _WRITTEN_HERE
    }
    if injected:
        annotations[SIDECAR] = capture_of(pod)
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
    changed = [name for name in fixed if now.get(name, before.get(name)) != before.get(name)]
    if changed:
        raise Invalid(*(Cause(_field(name), message) for name in changed))
    return _annotated(new, {**now, **{name: before[name] for name in fixed if name in before}})


def _only_adds_ports(before: str, now: str) -> bool:
    """Return whether a text of the annotation with ports has all pairs of an earlier text."""
    return set(before.split(",")) <= set(now.split(","))


def _has_started(pod: Object) -> bool:
    """Return whether a container of a pod runs or has run."""
    statuses = part(pod, "status").get("containerStatuses") or ()
    return any(part(status, "state").keys() & {"running", "terminated"} for status in statuses)


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


def pod_namespace(view: View, obj: Object) -> PodNamespace:
    """Return what injection uses of the namespace in which a pod or a workload is."""
    namespace = obj["metadata"].get("namespace", "")
    stored = view.get(Key("", "Namespace", "", namespace))
    configs, sidecars = (view.select(kind.group, kind.kind, namespace) for kind in (TLS_CONFIG, SIDECAR_KIND))
    labels, annotations = (part(stored["metadata"], field) if stored else {} for field in ("labels", "annotations"))
    return PodNamespace(labels=labels, configs=configs, sidecars=sidecars, annotations=annotations)


class SelectedNamespace(View):
    """A view in which a namespace has the labels by which an API server has selected it.

    The API server knows new labels earlier than a replica, which watches it: the first pod of a new namespace is created when
    the replica does not know the namespace yet. With `injected`, it has selected the namespace by the label `INJECT`; without
    `revised`, because it has no label `REVISION`.
    """

    def __init__(self, view: View, namespace: str, *, injected: bool, revised: bool) -> None:
        self._view = view
        self._key = Key("", "Namespace", "", namespace)
        self._injected = injected
        self._revised = revised

    def get(self, key: Key) -> Object | None:
        """Return an object; the namespace always exists."""
        obj = self._view.get(key)
        if key != self._key:
            return obj
        metadata = part(obj, "metadata") if obj else {}
        labels = {**part(metadata, "labels"), NAMESPACE_NAME: key.name}
        if self._injected and labels.get(INJECT) not in INJECTED:
            labels[INJECT] = INJECTED[0]
        if not self._revised:
            labels.pop(REVISION, None)
        return {**(obj or {}), "metadata": {**metadata, "labels": labels}}

    def select(self, group: str, kind: str, namespace: str) -> Sequence[Object]:
        """Return the objects of the view."""
        return self._view.select(group, kind, namespace)


def _field(annotation: str) -> str:
    return f"metadata.annotations.{annotation}"


def _annotated(pod: Object, annotations: Mapping[str, str]) -> Object:
    if annotations == part(pod["metadata"], "annotations"):
        return pod
    metadata = {name: part for name, part in pod["metadata"].items() if name != "annotations"}
    return {**pod, "metadata": metadata | ({"annotations": dict(annotations)} if annotations else {})}
