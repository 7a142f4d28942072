"""Explains why a pod has a sidecar or none, and what to do to change it, for the inspect API."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headgate.admission.injection import InjectionDecision, decision_message
from headgate.admission.sidecar_containers import CONTAINER, container_names, moved_checks
from headgate.admission.sidecar_merge import selecting
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import ADDED, CONFLICTS, EXCLUDED_PORTS, INJECT, PROCESS, sidecar_mode
from headgate.resources.decode import read
from headgate.resources.inspect import (
    AddedSidecar,
    ObjectName,
    PodSidecar,
    ProxyStatus,
    SidecarDecision,
    SidecarProxy,
)
from headgate.resources.meta import Object, Resource, part
from headgate.resources.pod_owners import controller, deployment_of
from headgate.resources.pod_templates import REPLACING_KINDS

_WISHES = {
    (True, True): ("remove the sidecar", "false"),
    (True, False): ("keep a sidecar", "true"),
    (False, True): ("keep new pods without a sidecar", "false"),
    (False, False): ("add a sidecar", "true"),
}
"""What a user may want, and the label's value for it. The keys are whether the pod has a sidecar and whether a new pod
gets a sidecar."""


class PodFacts(NamedTuple):
    """A pod, the decision for the same pod if it were created now, the Sidecars of its namespace, and its proxy's status.

    `proxy` is None if headgate expects no proxy for the pod. `probe` says which probe keeps it from being ready.
    """

    pod: Object
    decision: InjectionDecision
    sidecars: Iterable[Object]
    proxy: ProxyStatus | None
    probe: str = ""


def explain_pod(facts: PodFacts) -> PodSidecar:
    """Return why a pod has a sidecar or none."""
    pod, proxy = facts.pod, facts.proxy
    added = tuple(_added(pod, facts.sidecars))
    return PodSidecar(
        metadata=ObjectName(namespace=pod["metadata"].get("namespace", ""), name=pod["metadata"]["name"]),
        sidecar=sidecar_mode(pod),
        decision=SidecarDecision(
            injected=facts.decision.injected,
            setting=facts.decision.by,
            message=decision_message(facts.decision, pod["metadata"].get("namespace", "")),
        ),
        proxy=SidecarProxy(state=proxy.state, message=proxy.message, serves=proxy.serves) if proxy else None,
        sidecars=added,
        messages=tuple(_notes(facts)),
        advice_messages=(*_problems(facts, added), *_change(pod, facts.decision)),
    )


def _added(pod: Object, sidecars: Iterable[Object]) -> Iterator[AddedSidecar]:
    """Yield the Sidecars that the pod has or should have, by name."""
    annotations = part(pod["metadata"], "annotations")
    pairs = (entry.rpartition("@") for entry in annotations.get(ADDED, "").split(",") if entry)
    present = {name: int(generation) for name, _, generation in pairs if generation.isdecimal()}
    newest = {sidecar.metadata.name: sidecar.metadata.generation for sidecar in selecting(pod, sidecars)}
    conflicts = [entry.partition("/") for entry in annotations.get(CONFLICTS, "").split(",") if entry]
    for name in sorted(present.keys() | newest.keys() if PROCESS not in annotations else ()):
        yield AddedSidecar(
            name=name,
            generation=present.get(name, 0),
            newest=newest.get(name, 0),
            conflicts=tuple(path for sidecar, _, path in conflicts if sidecar == name),
        )


def _notes(facts: PodFacts) -> Iterator[str]:
    annotations, spec, status = (
        (part(facts.pod, "metadata").get("annotations") or {}),
        facts.pod["spec"],
        part(facts.pod, "status"),
    )
    ended = status.get("phase") in ENDED
    if ended:
        yield f"the pod has ended (phase {status['phase']})"
    elif facts.probe:
        yield f"it is not ready, and gets no requests of Services: {facts.probe.partition(': ')[2]}"
    if not sidecar_mode(facts.pod):
        if any(selecting(facts.pod, facts.sidecars)):
            yield "Sidecars add nothing to a pod without a sidecar of headgate"
        return
    if not ended and facts.proxy is None:
        reason = "has no usable address or ServiceAccount" if status.get("podIP") else "has no address yet"
        yield f"headgate expects no proxy, because the pod {reason}"
    if ports := annotations.get(EXCLUDED_PORTS):
        yield f"these ports bypass the sidecar: {ports} (annotation {EXCLUDED_PORTS})"
    for hook in _http_hooks(spec) if sidecar_mode(facts.pod) == "transparent" else ():
        yield (
            f"the kubelet sends the hook {hook} in plaintext and without an identity: a strict or closed workload rejects it; "
            f"use exec, or exclude its port with the annotation {EXCLUDED_PORTS}"
        )
    if any(container.get("name") == CONTAINER for container in spec.get("initContainers") or ()):
        yield "the sidecar is native: it starts before the pod's init containers, and ends after the application"
    if (policy := spec.get("restartPolicy", "Always")) != "Always":
        yield f"the pod ends by itself (restartPolicy {policy}); its sidecar ends after the other containers"


def _http_hooks(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lifecycle hooks by HTTP request to the pod, as `CONTAINER.lifecycle.FIELD.httpGet`."""
    for container in spec.get("containers") or ():
        for name in ("postStart", "preStop"):
            get = part(part(container, "lifecycle"), name).get("httpGet")
            if get and not get.get("host"):
                yield f"{container['name']}.lifecycle.{name}.httpGet"


def _problems(facts: PodFacts, added: Iterable[AddedSidecar]) -> Iterator[str]:
    """Yield what to do if the pod differs from a new pod with its labels, or if its proxy is not in sync."""
    pod, proxy, kind = facts.pod, facts.proxy, sidecar_mode(facts.pod)
    named = f"-n {pod['metadata'].get('namespace', '')} {{}} {pod['metadata']['name']}"
    if facts.probe and part(pod, "status").get("phase") not in ENDED:
        yield "correct the probe in the pod template, or the program, so that the probe succeeds"
    if proxy and proxy.state == "Disconnected":
        log = f" and its log: kubectl {named.format('logs')} -c {CONTAINER}" if kind == "transparent" else ""
        yield f"read the Events of the pod: kubectl {named.format('describe pod')}{log}"
    if facts.decision.injected != bool(kind):
        gets = "a sidecar" if facts.decision.injected else "no sidecar"
        yield f"a new pod with the same labels gets {gets}; {_replacement(pod)}"
        if CONTAINER in container_names(pod):
            yield "if `headgate inject` added the sidecar to the pod template, new pods get it from there; apply the original manifest"
    if CONTAINER in container_names(pod) and (checks := ", ".join(moved_checks(pod))):
        yield f"an older headgate injected the pod, and its sidecar does not serve {checks}; {_replacement(pod)}"
    if outdated := ", ".join(sidecar.name for sidecar in added if kind and sidecar.generation != sidecar.newest):
        yield f"the pod does not have the newest generation of the Sidecars {outdated}; {_replacement(pod)}"
    for sidecar in added:
        if sidecar.conflicts:
            yield f"Sidecar {sidecar.name}: choose other names for {', '.join(sidecar.conflicts)}; the pod has its own"


def _change(pod: Object, decision: InjectionDecision) -> Iterator[str]:
    """Yield what to change so that a new pod gets a sidecar, or so that it gets none."""
    if decision.by == "HeadgateRun":
        return
    if decision.by == "HostNetwork":
        yield "to add a sidecar, remove spec.hostNetwork from the pod template"
    elif decision.by == "SystemNamespace":
        yield "to add a sidecar, run the pod in another namespace"
    elif decision.by == "NamespaceName":
        namespace = pod["metadata"].get("namespace", "")
        yield f"to add a sidecar, run: kubectl label namespace {namespace} {decision.value}={namespace}"
    elif decision.by == "Option" and decision.value == "none":
        yield "to add sidecars, run headgate with --sidecars labelled"
    else:
        wish, value = _WISHES[bool(sidecar_mode(pod)), decision.injected]
        where = "of the pod template" if controller(pod) else "of a new pod"
        yield f'to {wish}, set the label {INJECT} {where} to "{value}"'


def _replacement(pod: Object) -> str:
    """Return how to replace a pod."""
    owner, namespace = controller(pod), pod["metadata"].get("namespace", "")
    deployment = deployment_of(read({"metadata": pod["metadata"]}, Resource).metadata)
    if deployment:
        return f"replace the pod: kubectl -n {namespace} rollout restart deployment/{deployment}"
    if owner and any(kind == owner.kind for _, kind in REPLACING_KINDS):
        return f"replace the pod: kubectl -n {namespace} rollout restart {owner.kind.lower()}/{owner.name}"
    return "replace the pod: delete it, and create it again"
