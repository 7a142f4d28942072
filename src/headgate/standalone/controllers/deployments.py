"""The Deployment controller, as in Kubernetes: one ReplicaSet for each template, and rolling updates."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from headgate.admission.workloads import check_selector
from headgate.manifests.apply import APPLIED_DIGEST, APPLIED_FROM
from headgate.objects.lifecycle import NAME_LETTERS
from headgate.resources.apps.deployment import Deployment
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.core.pod_spec import Pod, owner_uid
from headgate.resources.mesh_keys import APPLIED_POSITION
from headgate.resources.meta import Object, controller_reference
from headgate.resources.registry import key_of
from headgate.resources.selectors import selects
from headgate.standalone.controllers.actions import (
    Action,
    Create,
    Delete,
    TypedObject,
    Update,
    adopt,
    with_status,
)
from headgate.standalone.controllers.deployment_status import deployment_status
from headgate.standalone.controllers.rollout import Sizes, recreate, resize, roll

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_NOT_COPIED = {
    REVISION,
    "kubectl.kubernetes.io/last-applied-configuration",
    APPLIED_FROM,
    APPLIED_DIGEST,
    APPLIED_POSITION,
}
_DESIRED = "deployment.kubernetes.io/desired-replicas"


_Owned: TypeAlias = TypedObject[ReplicaSet]


def plan_deployment(
    subject: TypedObject[Deployment], replicasets: Sequence[TypedObject[ReplicaSet]], pods: Sequence[Pod], *, now: float
) -> list[Action]:
    """Return the actions that adopt, create, scale and delete ReplicaSets of a Deployment and write its status.

    `replicasets` and `pods` have those of the namespace, `now` is in seconds since the epoch. Raises DecodeError.
    """
    deployment, typed = subject
    if typed.metadata.deletion_timestamp:
        return []
    check_selector(typed)
    orphans = [replicaset for replicaset in replicasets if _adoptable(typed, replicaset.typed)]
    if orphans:
        return [adopt(replicaset.object, deployment) for replicaset in orphans]
    owned = _owned(typed, replicasets)
    current = next((replicaset for replicaset in owned if _template(replicaset.typed) == _template(typed)), None)
    if current is None and not typed.spec.paused:
        return [*_start_rollout(deployment, typed, owned, pods=pods), *_status(subject, owned, current, now=now)]
    old = [replicaset for replicaset in owned if replicaset is not current]
    actions = _steps(deployment, typed, current, old=old, pods=pods)
    return [*actions, *_prune_history(typed, old), *_status(subject, owned, current, now=now)]


def template_hash(template: dict[str, Any]) -> str:
    """Return the value of the label `pod-template-hash`, which identifies the pods of a template."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(NAME_LETTERS[byte % len(NAME_LETTERS)] for byte in digest[:10])


def _adoptable(deployment: Deployment, replicaset: ReplicaSet) -> bool:
    metadata = replicaset.metadata
    free = not owner_uid(metadata) and not metadata.deletion_timestamp
    return free and HASH_LABEL in metadata.labels and selects(deployment.spec.selector, metadata.labels)


def _owned(deployment: Deployment, replicasets: Sequence[_Owned]) -> list[_Owned]:
    mine = [
        replicaset
        for replicaset in replicasets
        if owner_uid(replicaset.typed.metadata) == deployment.metadata.uid
        and not replicaset.typed.metadata.deletion_timestamp
    ]
    return sorted(mine, key=lambda replicaset: (_revision(replicaset), replicaset.typed.metadata.name))


def _revision(replicaset: _Owned) -> int:
    text = replicaset.typed.metadata.annotations.get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _template(owner: Deployment | ReplicaSet) -> dict[str, Any]:
    """Return the pod template without the label `pod-template-hash`."""
    template = owner.spec.template
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _start_rollout(
    deployment: Object, typed: Deployment, owned: Sequence[_Owned], *, pods: Sequence[Pod]
) -> list[Action]:
    """Return the actions that create the ReplicaSet of a new template. With `Recreate`, they first delete old pods."""
    if typed.spec.strategy.type == "Recreate" and owned:
        return _scaled(owned, [0] * len(owned)) or (
            [] if _any_pod(owned, pods) else [_new(deployment, typed, owned, 0)]
        )
    replicas = typed.spec.replicas if not owned else 0
    return [_new(deployment, typed, owned, replicas)]


def _new(deployment: Object, typed: Deployment, owned: Sequence[_Owned], replicas: int) -> Create:
    digest = template_hash(_template(typed))
    template = _template(typed)
    labels = {**template["metadata"]["labels"], HASH_LABEL: digest}
    selector = {**(deployment["spec"].get("selector") or {})}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
    revision = max((_revision(replicaset) for replicaset in owned), default=0) + 1
    return Create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{typed.metadata.name}-{digest}",
                "namespace": typed.metadata.namespace,
                "labels": labels,
                "annotations": _annotations(typed, revision),
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": typed.spec.min_ready_seconds,
                "selector": selector,
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        }
    )


def _annotations(typed: Deployment, revision: int) -> dict[str, str]:
    """Return the annotations that a ReplicaSet copies from its Deployment; `kubectl rollout history` reads them."""
    copied = {name: text for name, text in typed.metadata.annotations.items() if name not in _NOT_COPIED}
    return {**copied, REVISION: str(revision), _DESIRED: str(typed.spec.replicas)}


def _steps(
    deployment: Object, typed: Deployment, current: _Owned | None, *, old: Sequence[_Owned], pods: Sequence[Pod]
) -> list[Action]:
    if current is None:  # paused, and the template has no ReplicaSet yet: only scale the old ReplicaSets
        return _scaled(old, resize([replicaset.typed.spec.replicas for replicaset in old], typed.spec.replicas))
    actions = _revise(deployment, typed, current, old)
    if typed.spec.paused and old:
        all_sets = [*old, current]
        return actions + _scaled(
            all_sets, resize([replicaset.typed.spec.replicas for replicaset in all_sets], typed.spec.replicas)
        )
    sizes = Sizes(
        wanted=typed.spec.replicas,
        new=current.typed.spec.replicas,
        new_available=current.typed.status.available_replicas,
        old=tuple(replicaset.typed.spec.replicas for replicaset in old),
        old_available=tuple(replicaset.typed.status.available_replicas for replicaset in old),
    )
    if typed.spec.strategy.type == "Recreate":
        new, rest = recreate(sizes, old_left=_any_pod(old, pods))
    else:
        new, rest = roll(sizes, typed.spec.strategy)
    return actions + _scaled([current, *old], [new, *rest])


def _revise(deployment: Object, typed: Deployment, current: _Owned, old: Sequence[_Owned]) -> list[Action]:
    """Return the actions that annotate the current ReplicaSet and the Deployment with the highest revision.

    After `kubectl rollout undo`, an old ReplicaSet becomes current and gets a new revision.
    """
    highest = max((_revision(replicaset) for replicaset in old), default=0)
    revision = _revision(current) if _revision(current) > highest else highest + 1
    actions: list[Action] = []
    annotations = {**typed.metadata.annotations, REVISION: str(revision)}
    if annotations != typed.metadata.annotations:
        actions.append(Update({**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}}))
    own_annotations = {**current.typed.metadata.annotations, **_annotations(typed, revision)}
    if own_annotations != current.typed.metadata.annotations:
        actions.append(
            Update({**current.object, "metadata": {**current.object["metadata"], "annotations": own_annotations}})
        )
    return actions


def _scaled(replicasets: Sequence[_Owned], sizes: Sequence[int]) -> list[Action]:
    return [
        Update({**replicaset.object, "spec": {**replicaset.object["spec"], "replicas": size}})
        for replicaset, size in zip(replicasets, sizes, strict=True)
        if replicaset.typed.spec.replicas != size
    ]


def _any_pod(replicasets: Sequence[_Owned], pods: Sequence[Pod]) -> bool:
    uids = {replicaset.typed.metadata.uid for replicaset in replicasets}
    return any(owner_uid(pod.metadata) in uids for pod in pods)


def _prune_history(typed: Deployment, old: Sequence[_Owned]) -> list[Action]:
    """Return the actions that delete the oldest empty ReplicaSets beyond revisionHistoryLimit."""
    empty = [
        replicaset for replicaset in old if not replicaset.typed.spec.replicas and not replicaset.typed.status.replicas
    ]
    surplus = len(empty) - typed.spec.revision_history_limit
    return [Delete(key_of(replicaset.object), replicaset.typed.metadata.uid) for replicaset in empty[: max(surplus, 0)]]


def _status(
    subject: TypedObject[Deployment], owned: Sequence[_Owned], current: _Owned | None, *, now: float
) -> list[Action]:
    status = deployment_status(
        subject.typed, [replicaset.typed for replicaset in owned], current.typed if current else None, now=now
    )
    return with_status(subject.object, status)
