"""What every object has: identity, labels, owners. Types name only the fields that headgate uses; the store keeps all."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

Object: TypeAlias = Mapping[str, Any]
"""An object as JSON, whole, as the user sees it. Never changed in place once another part has it: copy, then change."""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An immutable value: compares and hashes by content."""


class Input(Value, frozen=True, kw_only=True, rename="camel"):
    """A part of an object as Kubernetes writes it: camelCase in JSON, snake_case here; unknown fields are ignored."""


class Key(msgspec.Struct, frozen=True, order=True):
    """The one way to point at an object. `group` is empty for core kinds, `namespace` for cluster-scoped ones."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class OwnerReference(Input, frozen=True, kw_only=True):
    """Who made the object; when every owner is gone, so is the object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(Input, frozen=True, kw_only=True):
    """`metadata`, without what changes on every write (resourceVersion, managedFields)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class Resource(Input, frozen=True, kw_only=True):
    """Base of the typed kinds."""

    metadata: Metadata = Metadata()
