"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, for rollouts and `kubectl rollout undo`."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from headgate.resources.core.pod_spec import Pod
from headgate.resources.meta import Object, controller_reference, part
from headgate.resources.registry import key_of
from headgate.standalone.controllers.actions import Action, Create, Delete, Update, adopt
from headgate.standalone.controllers.deployments import template_hash

REVISION_HASH = "controller-revision-hash"
"""The label of a pod that has its revision."""
_HASH = "controller.kubernetes.io/hash"


class RevisionPlan(NamedTuple):
    """The revisions of a workload.

    `update` is the name of the one with the current template, and `actions` create it and delete surplus ones. `templates`
    has the template of each revision by name.
    """

    update: str
    actions: list[Action]
    templates: dict[str, Any]


def plan_revisions(owner: Object, revisions: Collection[Object], *, limit: int, used: Collection[str]) -> RevisionPlan:
    """Return the revisions of a workload and the actions that keep them up to date.

    `revisions` has those of the namespace; orphans of a workload with the same name are adopted. At most `limit` of them stay besides those that are `used`.
    """
    orphans = [revision for revision in revisions if _is_orphan_of(owner, revision)]
    mine = _sorted(owner, revisions, orphans)
    template = part(owner["spec"], "template")
    current = next((revision for revision in mine if _template(revision) == template), None)
    highest = max((int(revision["revision"]) for revision in mine), default=0)
    new = _new(owner, template, highest + 1)
    update = str((current or new)["metadata"]["name"])
    actions: list[Action] = [adopt(revision, owner) for revision in orphans]
    if not current:
        actions.append(Create(new))
    if current and current["revision"] < highest:  # after `kubectl rollout undo`
        actions.append(Update({**current, "revision": highest + 1}))
    unused = [revision for revision in mine if revision["metadata"]["name"] not in {update, *used}]
    surplus = unused[: max(len(unused) - limit, 0)]
    actions += [Delete(key_of(revision), revision["metadata"]["uid"]) for revision in surplus]
    templates = {revision["metadata"]["name"]: _template(revision) for revision in mine}
    return RevisionPlan(update, actions, {**templates, update: template})


def revision_of(pod: Pod) -> str:
    """Return the label of a pod that has its revision."""
    return pod.metadata.labels.get(REVISION_HASH, "")


def _is_orphan_of(owner: Object, revision: Object) -> bool:
    """Return whether a revision without a controller was of a workload with the same name, deleted with `--cascade=orphan`."""
    metadata = revision["metadata"]
    if any(reference.get("controller") for reference in metadata.get("ownerReferences") or ()):
        return False
    digest = part(metadata, "labels").get(_HASH)
    return bool(digest) and metadata["name"] == f"{owner['metadata']['name']}-{digest}"


def _sorted(owner: Object, revisions: Iterable[Object], orphans: Sequence[Object]) -> Sequence[Object]:
    uid = owner["metadata"]["uid"]
    mine = [
        revision
        for revision in revisions
        if any(reference["uid"] == uid for reference in revision["metadata"].get("ownerReferences") or ())
    ]
    return sorted([*mine, *orphans], key=lambda revision: int(revision["revision"]))


def _template(revision: Object) -> Any:
    template = part(part(revision.get("data"), "spec"), "template")
    return {name: value for name, value in template.items() if name != "$patch"}


def _new(owner: Object, template: Any, number: int) -> Object:
    metadata = owner["metadata"]
    digest = template_hash(template)
    labels = part(part(template, "metadata"), "labels")
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{metadata['name']}-{digest}",
            "namespace": metadata["namespace"],
            "labels": {**labels, _HASH: digest},
            "annotations": _annotations(metadata),
            "ownerReferences": [controller_reference(owner)],
        },
        # A strategic merge patch of the workload: `kubectl rollout undo` sends it. See the API conventions of ControllerRevision.
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }


def _annotations(metadata: Any) -> dict[str, str]:
    """Return the annotations that `kubectl rollout history` shows."""
    cause = "kubernetes.io/change-cause"
    return {cause: metadata["annotations"][cause]} if cause in (metadata.get("annotations") or {}) else {}
