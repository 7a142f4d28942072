"""`metadata` of objects: its types, its checks, and helpers that read parts of an object as JSON.

The store keeps all fields of an object; the types have those that headgate reads. The rules for names and labels are
Kubernetes' own. Times are RFC 3339 in UTC.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

from headgate.errors import Cause
from headgate.formatting import NONE, age

T = TypeVar("T")
SYSTEM_NAMESPACE = "headgate-system"
"""The namespace of headgate's own objects, and of proxies that belong to no pod."""

Object: TypeAlias = Mapping[str, Any]
"""A whole object as JSON. Objects are shared: copy an object before you change it."""
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_SUBDOMAIN = 253
_LARGEST_ANNOTATIONS = (
    256 * 1024
)  # Kubernetes' limit in bytes for all annotations of an object, keys and values together
_LABEL_KINDS = frozenset({"Namespace", "Service"})


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An immutable value that is compared and hashed by content."""


class Input(Value, frozen=True, kw_only=True, rename="camel"):
    """The base class for parts of objects.

    Fields are in camelCase in JSON and in snake_case in Python; unknown fields are ignored.
    """


class Key(msgspec.Struct, frozen=True, order=True):
    """The key of an object. `group` is empty for core kinds, `namespace` for cluster-scoped kinds."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class OwnerReference(Input, frozen=True, kw_only=True):
    """An owner of the object. Garbage collection deletes the object after its last owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(Input, frozen=True, kw_only=True):
    """`metadata` without the fields that every write changes (resourceVersion, managedFields)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Resource(Input, frozen=True, kw_only=True):
    """The base class of all typed kinds."""

    metadata: Metadata = Metadata()


def parsed(text: object, parse: Callable[[str], T]) -> T | None:
    """Return the value of a text; None if it is absent, or has a mistake that the schema reports."""
    try:
        return parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def rows(value: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a list with their indexes; nothing if the value is no list. Other items are skipped."""
    for index, row in enumerate(value if isinstance(value, list | tuple) else ()):
        if isinstance(row, Mapping):
            yield index, row


def deeper_than(value: object, levels: int) -> bool:
    """Return whether a decoded JSON value has more levels of lists and objects."""
    level = [value]
    for _ in range(levels + 1):
        inner = (
            part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list | tuple)
        )
        level = [part for parts in inner for part in parts]
        if not level:
            return False
    return True


def part(value: object, name: str) -> Mapping[str, Any]:
    """Return an object's field `name` if it is an object itself, else an empty object."""
    inner = value.get(name) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def namespace_of(obj: Object) -> str:
    """Return an object's namespace, which is `default` if it names none."""
    return str(part(obj, "metadata").get("namespace") or "default")


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return the labels of a stored object."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> Mapping[str, str]:
    """Return the annotations of a stored object."""
    return obj["metadata"].get("annotations") or {}


def generation_of(obj: Object) -> int:
    """Return the generation of a stored object; 0 if it has none."""
    return int(obj["metadata"].get("generation", 0))


def status_of(obj: Object) -> Mapping[str, Any]:
    """Return the status of a stored object; empty if it has none."""
    return obj.get("status") or {}


def annotation(obj: Object, name: str) -> object:
    """Return an annotation's value, of any type; None if the annotation is missing."""
    return part(part(obj, "metadata"), "annotations").get(name)


def service_name(written: str, namespace: str, domain: str) -> str:
    """Return `namespace/name` of a Service from one of its DNS names; empty if the text is no such name.

    The forms are `website`, `website.ns`, `website.ns.svc` and `website.ns.svc.<domain>`; case is ignored.
    """
    parts = written.lower().removesuffix(".").split(".", 2)
    if not all(parts) or parts[2:] not in ([], ["svc"], [f"svc.{domain.lower()}"]):
        return ""
    return f"{parts[1] if len(parts) > 1 else namespace}/{parts[0]}"


def controller_reference(owner: Object) -> dict[str, object]:
    """Return the ownerReference with which an object names `owner` as its controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def timestamp(seconds: float) -> str:
    """Format seconds since the epoch as `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_timestamp(seconds: float) -> str:
    """Format seconds since the epoch with milliseconds: `2026-01-31T12:00:00.125Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def micro_timestamp(seconds: float) -> str:
    """Format seconds since the epoch as Kubernetes' MicroTime: `2026-01-31T12:00:00.125000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def epoch_seconds(text: str) -> float:
    """Parse a timestamp to seconds since the epoch. The result is 0 for an empty or malformed text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def since(moment: str | None) -> str:
    """Return how long ago a timestamp was, as `5m`; `-` for none."""
    return age(datetime.now(UTC).timestamp() - epoch_seconds(moment)) if moment else NONE


def is_dns_label(text: str) -> bool:
    """Return whether `text` is an RFC 1123 label, as names of Services and Namespaces are."""
    return DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return whether `text` is an RFC 1123 subdomain, as names of most objects are."""
    return len(text) <= _LONGEST_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(text) is not None


def label_fault(text: str) -> str:
    """Return why `text` is not a valid name of a Service or Namespace; empty if it is valid."""
    if is_dns_label(text):
        return ""
    return f"{text!r} is not valid: use at most 63 lower case letters, digits and '-', beginning and ending with a letter or digit"


def subdomain_fault(text: str) -> str:
    """Return why `text` is not a valid name of an object; empty if it is valid."""
    if is_dns_subdomain(text):
        return ""
    return (
        f"{text!r} is not valid: use at most 253 lower case letters, digits, '-' and '.', "
        "beginning and ending with a letter or digit"
    )


def label_key_fault(key: str) -> str:
    """Return why a text is not a valid key of a label or annotation; empty if it is valid."""
    prefix, slash, word = key.rpartition("/")
    if slash and not is_dns_subdomain(prefix.lower()):
        return f"the part before '/' of key {key!r} must be a DNS name such as example.com"
    if _LABEL_WORD.fullmatch(word) is None:
        return f"key {key!r} must have at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    return ""


def metadata_causes(obj: Object) -> Iterator[Cause]:
    """Yield every mistake in an object's `metadata`. The object's kind decides which names are allowed."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        message = "is missing: give the object a metadata.name" if metadata is None else "must be an object"
        yield Cause("metadata", message)
        return
    fault = label_fault if obj.get("kind") in _LABEL_KINDS else subdomain_fault
    yield from _name_causes(metadata, fault)
    yield from label_causes(metadata.get("labels"), "metadata.labels")
    yield from annotation_causes(metadata.get("annotations"), "metadata.annotations")
    yield from _annotation_size(metadata.get("annotations"))
    yield from _finalizer_causes(metadata.get("finalizers"))
    yield from _owner_causes(metadata.get("ownerReferences"))


def label_causes(labels: object, where: str) -> Iterator[Cause]:
    """Yield every mistake in the labels of an object or of a selector. `where` is their path."""
    yield from _map_causes(where, labels, label_value_fault)


def annotation_causes(annotations: object, where: str) -> Iterator[Cause]:
    """Yield every mistake in the keys of annotations, and each value that is not text. `where` is their path."""
    yield from _map_causes(where, annotations, lambda _: "")


def _name_causes(metadata: Mapping[str, Any], fault: Callable[[str], str]) -> Iterator[Cause]:
    for field, check in (("name", fault), ("namespace", label_fault)):
        value = metadata.get(field)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            yield Cause(f"metadata.{field}", f"must be text; write {field}: {str(value)!r} with quotes")
        elif message := check(value):
            yield Cause(f"metadata.{field}", message)
    if not metadata.get("name") and not isinstance(metadata.get("generateName", ""), str):
        yield Cause("metadata.generateName", "must be text")
    elif not metadata.get("name") and not metadata.get("generateName"):
        yield Cause("metadata.name", "is missing: give the object a name")


def _map_causes(field: str, value: object, fault: Callable[[str], str]) -> Iterator[Cause]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield Cause(field, f"must map text to text, not be {type_name(value)}")
        return
    for key, text in value.items():
        where = f"{field}.{key}"
        if not isinstance(key, str):
            yield Cause(field, f"key {key!r} must be text; write it with quotes")
        elif message := label_key_fault(key):
            yield Cause(where, message)
        elif not isinstance(text, str):
            yield Cause(where, f"must be text, not {type_name(text)}; write it with quotes")
        elif message := fault(text):
            yield Cause(where, message)


def label_value_fault(text: str) -> str:
    """Return why a text is not a valid value of a label; empty if it is valid."""
    if text == "" or _LABEL_WORD.fullmatch(text):
        return ""
    return f"{text!r} is not a label value: use at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"


def _annotation_size(annotations: object) -> Iterator[Cause]:
    if not isinstance(annotations, Mapping):
        return
    size = sum(
        len(key) + len(text) for key, text in annotations.items() if isinstance(key, str) and isinstance(text, str)
    )
    if size > _LARGEST_ANNOTATIONS:
        yield Cause(
            "metadata.annotations", f"have {size} characters together; at most {_LARGEST_ANNOTATIONS} are allowed"
        )


def _finalizer_causes(value: object) -> Iterator[Cause]:
    if value is None:
        return
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        yield Cause("metadata.finalizers", "must be a list of names")
        return
    for index, name in enumerate(value):
        if fault := label_key_fault(name):
            yield Cause(f"metadata.finalizers[{index}]", fault)


def _owner_causes(value: object) -> Iterator[Cause]:
    if value is None:
        return
    if not isinstance(value, list):
        yield Cause("metadata.ownerReferences", "must be a list")
        return
    for index, reference in enumerate(value):
        where = f"metadata.ownerReferences[{index}]"
        if not isinstance(reference, Mapping):
            yield Cause(where, "must be an object")
            continue
        for name in ("apiVersion", "kind", "name", "uid"):
            if not isinstance(reference.get(name), str) or not reference[name]:
                yield Cause(f"{where}.{name}", "is required and must be text")


def type_name(value: object) -> str:
    """Return the name of a JSON value's type for messages to users."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a fraction"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"
