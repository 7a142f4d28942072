"""The pods of a StatefulSet, which have ordinals and stable names, and their PersistentVolumeClaims."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from headgate.resources.apps.stateful_set import POD_INDEX, POD_NAME, StatefulSet
from headgate.resources.meta import Object, controller_reference
from headgate.standalone.controllers.actions import Update, adopt, with_owners
from headgate.standalone.controllers.controller_revisions import REVISION_HASH
from headgate.standalone.controllers.owned_pods import new_pod

_NUMBERED = re.compile(r"(.+)-(0|[1-9][0-9]*)")


def ordinal_of(owner: str, name: str) -> int | None:
    """Return the ordinal in a pod's name; None if no pod of the StatefulSet has the name."""
    match = _NUMBERED.fullmatch(name)
    return int(match[2]) if match and match[1] == owner else None


def stateful_pod(owner: Object, template: Any, revision: str, ordinal: int) -> Object:
    """Return the pod with an ordinal, from the template of a revision. Its claims are volumes with the names of their templates."""
    pod = new_pod({**owner, "spec": {**owner["spec"], "template": template}})
    name = f"{owner['metadata']['name']}-{ordinal}"
    metadata = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    labels = {**metadata.get("labels", {}), REVISION_HASH: revision, POD_NAME: name, POD_INDEX: str(ordinal)}
    templates = owner["spec"].get("volumeClaimTemplates") or ()
    claims = {claim["metadata"]["name"]: f"{claim['metadata']['name']}-{name}" for claim in templates}
    volumes = [volume for volume in pod["spec"].get("volumes") or () if volume.get("name") not in claims]
    volumes += [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim_name}} for volume, claim_name in claims.items()
    ]
    subdomain = owner["spec"].get("serviceName")
    spec = {
        **pod["spec"],
        "hostname": name,
        **({"subdomain": subdomain} if subdomain else {}),
        **({"volumes": volumes} if volumes else {}),
    }
    return {**pod, "metadata": {**metadata, "name": name, "labels": labels}, "spec": spec}


def missing_claims(owner: Object, typed: StatefulSet, ordinal: int, existing: Iterable[str]) -> Iterator[Object]:
    """Yield the claims of a pod that do not exist yet. They belong to the StatefulSet if they are deleted with it."""
    names = frozenset(existing)
    metadata = owner["metadata"]
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        name = claim_name(template, metadata["name"], ordinal)
        if name not in names:
            written = template["metadata"]
            labels = {**(written.get("labels") or {}), **typed.spec.selector.match_labels}
            yield {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    **({"annotations": written["annotations"]} if written.get("annotations") else {}),
                    **({"ownerReferences": [controller_reference(owner)]} if _is_followed(typed) else {}),
                },
                "spec": template.get("spec") or {},
            }


def claim_owners(
    owner: Object, typed: StatefulSet, ordinals: Collection[int], claims: Iterable[Object]
) -> Iterator[Update]:
    """Yield the actions that make claims belong to the StatefulSet or not, when `whenDeleted` has changed.

    `ordinals` has those of its pods. Claims of ordinals without a pod never begin to belong to it.
    """
    names = claim_names(typed, ordinals)
    for claim in claims:
        metadata = claim["metadata"]
        references = metadata.get("ownerReferences") or []
        other_owners = [reference for reference in references if reference["uid"] != typed.metadata.uid]
        if not _is_followed(typed):
            if len(other_owners) < len(references):
                yield with_owners(claim, other_owners)
            continue
        is_free = other_owners == references and not any(reference.get("controller") for reference in other_owners)
        if is_free and metadata["name"] in names and not metadata.get("deletionTimestamp"):
            yield adopt(claim, owner)


def _is_followed(typed: StatefulSet) -> bool:
    """Return whether claims are deleted with the StatefulSet."""
    return typed.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete"


def claim_names(typed: StatefulSet, ordinals: Collection[int]) -> frozenset[str]:
    """Return the claim names of the pods with these ordinals."""
    templates, name = typed.spec.volume_claim_templates, typed.metadata.name
    return frozenset(claim_name(template, name, ordinal) for template in templates for ordinal in ordinals)


def claim_name(template: Any, owner: str, ordinal: int) -> str:
    """Return the name of a pod's claim: `data-web-0`."""
    return f"{template['metadata']['name']}-{owner}-{ordinal}"
