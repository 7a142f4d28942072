"""The StatefulSet controller, as in Kubernetes: pods with stable names that start and end in order."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.admission.workloads import check_selector
from headgate.resources.apps.stateful_set import StatefulSet
from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import (
    Action,
    Create,
    Delete,
    TypedObject,
    with_status,
)
from headgate.standalone.controllers.controller_revisions import RevisionPlan, plan_revisions, revision_of
from headgate.standalone.controllers.owned_pods import available, claims, owns, rechecks
from headgate.standalone.controllers.stateful_pods import (
    claim_names,
    claim_owners,
    missing_claims,
    ordinal_of,
    stateful_pod,
)


class SetObjects(NamedTuple):
    """The objects of a namespace that StatefulSets use."""

    pods: Sequence[TypedObject[Pod]]
    revisions: Collection[Object]
    claims: Collection[Object]


class _Members(NamedTuple):
    """The pods of a StatefulSet by ordinal: those that it needs, and surplus ones."""

    needed: Mapping[int, TypedObject[Pod]]
    surplus: Mapping[int, TypedObject[Pod]]


def plan_stateful_set(subject: TypedObject[StatefulSet], objects: SetObjects, *, now: float) -> list[Action]:
    """Return the actions that create, delete and replace pods of a StatefulSet, their claims and revisions, and its status.

    `objects` has those of the namespace, `now` is in seconds since the epoch. Raises DecodeError.
    """
    owner, typed = subject
    if typed.metadata.deletion_timestamp:
        return []
    check_selector(typed)
    named = [pod for pod in objects.pods if ordinal_of(typed.metadata.name, pod.typed.metadata.name) is not None]
    members = _members(typed, named)
    pods = [*members.needed.values(), *members.surplus.values()]
    used = {typed.status.current_revision, *(revision_of(pod.typed) for pod in pods)}
    revisions = plan_revisions(owner, objects.revisions, limit=typed.spec.revision_history_limit, used=used)
    steps = _steps(subject, members, revisions, objects, now=now)
    return [
        *claims(owner, typed.spec.selector, named),
        *revisions.actions,
        *claim_owners(owner, typed, [*members.needed, *members.surplus], objects.claims),
        *steps,
        *_unneeded_claims(typed, members, steps, objects),
        *with_status(owner, _status(typed, [pod.typed for pod in pods], revisions, now=now)),
        *rechecks([pod.typed for pod in pods], typed.spec.min_ready_seconds, now),
    ]


def _members(typed: StatefulSet, pods: Sequence[TypedObject[Pod]]) -> _Members:
    mine = {
        ordinal: pod
        for pod in pods
        if owns(typed.metadata.uid, typed.spec.selector, pod.typed)
        and (ordinal := ordinal_of(typed.metadata.name, pod.typed.metadata.name)) is not None
    }
    needed = {ordinal: pod for ordinal, pod in sorted(mine.items()) if ordinal in typed.ordinals}
    surplus = {ordinal: pod for ordinal, pod in sorted(mine.items(), reverse=True) if ordinal not in needed}
    return _Members(needed, surplus)


def _steps(
    subject: TypedObject[StatefulSet], members: _Members, revisions: RevisionPlan, objects: SetObjects, *, now: float
) -> list[Action]:
    """Return the next steps: missing pods from the lowest ordinal on, then surplus ones, then pods of an old revision.

    With OrderedReady, a step waits until the pods before it are available and those that are deleted have ended. With
    Parallel, only the update of a pod waits, for the pods above it.
    """
    typed = subject.typed
    ordered = typed.spec.pod_management_policy != "Parallel"
    actions: list[Action] = []
    for ordinal in typed.ordinals:
        pod = members.needed.get(ordinal)
        step = [*_started(subject, pod, ordinal, revisions, objects)]
        actions += step
        if ordered and (step or pod is None or not _settled(pod.typed, typed, now)):
            return actions
    surplus = _deleted(subject.object, [*members.surplus.values()][: 1 if ordered else None])
    if actions or (ordered and members.surplus):
        return [*actions, *surplus]
    return [*surplus, *_updated(subject, members, revisions, now=now)]


def _settled(pod: Pod, typed: StatefulSet, now: float) -> bool:
    return not pod.metadata.deletion_timestamp and available(pod, typed.spec.min_ready_seconds, now)


def _started(
    subject: TypedObject[StatefulSet],
    pod: TypedObject[Pod] | None,
    ordinal: int,
    revisions: RevisionPlan,
    objects: SetObjects,
) -> Iterator[Action]:
    """Yield the actions that create the pod with an ordinal and its missing claims, or delete the pod if it has ended."""
    owner, typed = subject
    existing = [claim["metadata"]["name"] for claim in objects.claims]
    if pod:
        if pod.typed.status.phase in ("Succeeded", "Failed"):
            yield from _deleted(owner, [pod])
        elif not pod.typed.metadata.deletion_timestamp:
            yield from (Create(claim, owner) for claim in missing_claims(owner, typed, ordinal, existing))
        return
    names = claim_names(typed, [ordinal])
    if any(
        claim["metadata"].get("deletionTimestamp") for claim in objects.claims if claim["metadata"]["name"] in names
    ):
        return  # a pod would wait for a new claim, and keep the old one from being removed; its removal decides again
    yield from (Create(claim, owner) for claim in missing_claims(owner, typed, ordinal, existing))
    revision = revisions.update
    current = typed.status.current_revision
    if (
        typed.spec.update_strategy.type == "RollingUpdate"
        and ordinal < _partition(typed)
        and current in revisions.templates
    ):
        revision = current
    yield Create(stateful_pod(owner, revisions.templates[revision], revision, ordinal), owner)


def _partition(typed: StatefulSet) -> int:
    """Return the ordinal from which on pods get a new template."""
    return typed.spec.ordinals.start + typed.spec.update_strategy.rolling_update.partition


def _deleted(owner: Object, pods: Iterable[TypedObject[Pod]]) -> list[Action]:
    return [
        Delete(key_of(pod.object), pod.typed.metadata.uid, owner)
        for pod in pods
        if not pod.typed.metadata.deletion_timestamp
    ]


def _updated(
    subject: TypedObject[StatefulSet], members: _Members, revisions: RevisionPlan, *, now: float
) -> list[Action]:
    """Return the action that deletes the pod with an old revision and the highest ordinal, available or not.

    It waits until the pods above are available.
    """
    owner, typed = subject
    if typed.spec.update_strategy.type != "RollingUpdate":
        return []
    for ordinal in reversed(typed.ordinals):
        pod = members.needed.get(ordinal)
        if ordinal < _partition(typed) or pod is None or pod.typed.metadata.deletion_timestamp:
            break
        if revision_of(pod.typed) != revisions.update:
            return _deleted(owner, [pod])
        if not _settled(pod.typed, typed, now):
            break
    return []


def _unneeded_claims(
    typed: StatefulSet, members: _Members, steps: Iterable[Action], objects: SetObjects
) -> Iterator[Action]:
    """Yield the deletion of claims whose pods are scaled away, if the StatefulSet says so.

    Claims that an earlier policy has kept have no such pod, and stay. A claim outlives its deletion until no pod uses it.
    """
    if typed.spec.persistent_volume_claim_retention_policy.when_scaled != "Delete":
        return
    deleted = {step.uid for step in steps if isinstance(step, Delete)}
    leaving = [
        ordinal
        for ordinal, pod in members.surplus.items()
        if pod.typed.metadata.deletion_timestamp or pod.typed.metadata.uid in deleted
    ]
    names = claim_names(typed, leaving)
    for claim in objects.claims:
        metadata = claim["metadata"]
        if metadata["name"] in names and not metadata.get("deletionTimestamp"):
            yield Delete(key_of(claim), metadata["uid"])


def _status(typed: StatefulSet, pods: Sequence[Pod], revisions: RevisionPlan, *, now: float) -> Object:
    """Return the status. The current revision becomes the update revision when all pods have it and are ready."""
    live = [pod for pod in pods if not pod.metadata.deletion_timestamp]
    ready = [pod for pod in live if pod.ready_since is not None]
    updated = [pod for pod in live if revision_of(pod) == revisions.update]
    current = typed.status.current_revision or revisions.update
    if len(updated) == len(ready) == len(pods) == typed.spec.replicas:
        current = revisions.update
    numbers = {
        "currentReplicas": sum(revision_of(pod) == current for pod in live),
        "updatedReplicas": len(updated),
        "readyReplicas": len(ready),
    }
    return {
        "observedGeneration": typed.metadata.generation,
        "replicas": len(pods),
        **{name: number for name, number in numbers.items() if number},
        "availableReplicas": sum(available(pod, typed.spec.min_ready_seconds, now) for pod in live),
        "currentRevision": current,
        "updateRevision": revisions.update,
        "collisionCount": 0,
    }
