"""The fields that a store sets on create, update and delete, as a Kubernetes API server does.

The functions are pure, except for the time, random names and uids.
"""

import secrets
import time
import uuid
from collections.abc import Set as AbstractSet
from typing import Any

from headgate.errors import Cause, Conflict, Invalid, NotFound
from headgate.resources.batch.job import GROUP as BATCH
from headgate.resources.batch.job import with_selector
from headgate.resources.custom.definition import established
from headgate.resources.kind import Kind, split_api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Key, Object, labels_of, metadata_causes, namespace_of, timestamp
from headgate.resources.registry import BUILT_IN, DEFINITION
from headgate.resources.unknown_kinds import unknown_kind

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # The characters of generated names, as in Kubernetes.
# The longest `generateName` in characters: with five more, a name has the 63 characters of a DNS label.
_LONGEST_PREFIX = 58
_OWNED_BY_STORE = (
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def kind_of(obj: Object, kinds: KindSet = BUILT_IN) -> Kind:
    """Return the kind of an object.

    Raises Invalid if headgate does not store the kind, or stores another version of it.
    """
    group, version = split_api_version(str(obj.get("apiVersion", "")))
    kind = kinds.find(group, str(obj.get("kind", "")))
    if kind is None:
        raise Invalid(unknown_kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")), kinds))
    if version != kind.versions[0]:
        message = f"objects of the kind are stored as {kind.hub}, not as {obj['apiVersion']}; convert the object first"
        raise Invalid(Cause("apiVersion", message))
    return kind


def qualified_name(kind: Kind) -> str:
    """Return the name of a kind in Kubernetes' messages: `trafficsplits.split.smi-spec.io`."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def with_namespace(obj: Object, kind: Kind) -> Object:
    """Return the object with a namespace (default: `default`) if its kind is namespaced, and without one otherwise.

    Raises Invalid for invalid metadata.
    """
    causes = tuple(metadata_causes(obj))
    if causes:
        raise Invalid(*causes)
    return with_metadata(obj, namespace=namespace_of(obj) if kind.namespaced else None)


def with_metadata(obj: Object, **fields: Any) -> Object:
    """Return a copy of the object with the given metadata fields; None removes a field."""
    metadata = {**obj["metadata"], **fields}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value is not None}}


def with_generated_name(obj: Object) -> Object:
    """Return the object with a name. If the name is missing, append five random characters to `generateName`."""
    metadata = obj["metadata"]
    if metadata.get("name"):
        return obj
    letters = "".join(secrets.choice(NAME_LETTERS) for _ in range(5))
    return with_metadata(obj, name=metadata["generateName"][:_LONGEST_PREFIX] + letters)


def prepare_create(obj: Object, kind: Kind) -> Object:
    """Return a new object as create stores it: with uid, creationTimestamp and generation 1.

    A status that the user wrote is dropped if the kind has a status subresource. The store sets the resourceVersion
    later.
    """
    bare = {name: value for name, value in obj.items() if name != "status"} if kind.status else obj
    if (kind.group, kind.kind) == ("", "Namespace"):
        labels = {**labels_of(obj), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
        bare = {**with_metadata(bare, labels=labels), "status": {"phase": "Active"}}
    elif kind is DEFINITION:
        bare = established(bare, None, now())
    created = with_metadata(
        bare,
        uid=str(uuid.uuid4()),
        creationTimestamp=now(),
        generation=1,
        resourceVersion=None,
        deletionTimestamp=None,
        deletionGracePeriodSeconds=None,
        managedFields=obj["metadata"].get("managedFields") or None,
    )
    return with_selector(created) if (kind.group, kind.kind) == (BATCH, "Job") else created


def prepare_update(new: Object, old: Object, kind: Kind) -> Object:
    """Return an object as update stores it: the user's content, with the old status, uid and creationTimestamp.

    The generation grows by 1 if the content differs. Raises Invalid if a finalizer is added during the deletion.
    """
    _check_finalizers(new, old)
    kept = {name: old["metadata"].get(name) for name in _OWNED_BY_STORE} | _managers(new, old)
    merged = dict(with_metadata(new, **kept))
    if kind.status:
        merged.pop("status", None)
        if "status" in old:
            merged["status"] = old["status"]
    if kind is DEFINITION:
        merged = dict(established(merged, old, now()))
    if _content(merged) != _content(old):
        return with_metadata(merged, generation=old["metadata"]["generation"] + 1)
    return merged


def prepare_status_update(new: Object, old: Object, kind: Kind) -> Object:
    """Return the old object with the new status. Raises NotFound if objects of the kind have no status."""
    if not kind.status:
        raise NotFound(f"{qualified_name(kind)} have no status subresource: update the object")
    bare = {name: value for name, value in old.items() if name != "status"}
    merged = with_metadata(bare, **_managers(new, old))
    return {**merged, "status": new["status"]} if "status" in new else merged


def _managers(new: Object, old: Object) -> dict[str, Any]:
    """Return `managedFields`: those of the new object if it has any, else those of the old one."""
    return {"managedFields": new["metadata"].get("managedFields", old["metadata"].get("managedFields")) or None}


def _content(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _check_finalizers(new: Object, old: Object) -> None:
    if "deletionTimestamp" not in old["metadata"]:
        return
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if added:
        raise Invalid(
            Cause("metadata.finalizers", f"can't add {', '.join(sorted(added))}: the object is being deleted")
        )


def check_preconditions(old: Object, kind: Kind, *, uid: str, resource_version: str) -> None:
    """Raise Conflict if the object does not have the uid and the resource version that the caller read."""
    metadata = old["metadata"]
    what = f'Operation cannot be fulfilled on {qualified_name(kind)} "{metadata["name"]}"'
    if uid and uid != metadata["uid"]:
        raise Conflict(
            f"{what}: its uid is {metadata['uid']}, not {uid}: the object was deleted and created again; read the object again"
        )
    if resource_version and resource_version != metadata["resourceVersion"]:
        raise Conflict(
            f"{what}: the object has been modified; please apply your changes to the latest version and try again"
        )


def mark_deleted(obj: Object) -> Object:
    """Return the object with a deletionTimestamp; a Namespace also gets the phase `Terminating`."""
    marked = with_metadata(obj, deletionTimestamp=now(), deletionGracePeriodSeconds=0)
    return (
        {**marked, "status": {"phase": "Terminating"}}
        if (obj["apiVersion"], obj["kind"]) == ("v1", "Namespace")
        else marked
    )


def without_owners(obj: Object, uids: AbstractSet[str]) -> Object:
    """Return the object without its references to owners with these uids."""
    rest = [reference for reference in obj["metadata"]["ownerReferences"] if reference["uid"] not in uids]
    return with_metadata(obj, ownerReferences=rest or None)


def service_account(namespace: str) -> Object:
    """Return the ServiceAccount `default` of a namespace."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}


def namespace(name: str) -> Object:
    """Return a Namespace without labels and status, as `create` accepts it."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def namespace_key(name: str) -> Key:
    """Return the key of a Namespace."""
    return Key("", "Namespace", "", name)


def now() -> str:
    """Return the current time in Kubernetes' format, RFC 3339 in UTC: `2026-01-31T12:00:00Z`."""
    return timestamp(time.time())
