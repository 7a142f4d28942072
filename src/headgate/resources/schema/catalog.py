"""The schemas of all kinds, as OpenAPI definitions.

A schema has the fields, their types, and the keys of list items. The embedded API publishes the schemas (for
`kubectl explain` and client-side validation), merges objects by them, and checks writes with them. Definitions of
Kubernetes and of the Gateway API are JSON files. The rooms of SMI's kinds have theirs: the published CRDs contradict
their own specification (a header filter is a list, weights are fractions), and headgate accepts every shape that is in
use (D4).
"""

import functools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from headgate.resources.further.kinds import further_definitions
from headgate.resources.kind import Kind
from headgate.resources.kind_set import KindSet
from headgate.resources.registry import KINDS
from headgate.resources.schema import builders
from headgate.resources.schema.builders import Schema
from headgate.resources.schema.published import linked, linked_schema, published

GroupVersionKind: TypeAlias = tuple[str, str, str]


def _own() -> dict[str, Schema]:
    """Return the definitions of SMI's and headgate's kinds by name."""
    kinds = {
        (group, version, kind.kind): kind.schema(group, version)
        for kind in KINDS
        if kind.schema
        for group, version in kind.served_versions
    }
    return {definition_name(*gvk): _of_kind(gvk, schema) for gvk, schema in kinds.items()}


def _further_versions() -> dict[str, Schema]:
    """Return the definitions of versions that are newer than the published data: they have the same fields."""
    names = _names(published())
    further: dict[str, Schema] = {}
    for kind in KINDS:
        served = [version for version in kind.versions if (kind.group, version, kind.kind) in names]
        for version in kind.versions if served else ():
            if version not in served:
                name = names[kind.group, served[0], kind.kind]
                schema = _of_kind((kind.group, version, kind.kind), published()[name])
                further[name.replace(f".{served[0]}.", f".{version}.")] = schema
    return further


def _of_kind(gvk: GroupVersionKind, schema: Schema) -> Schema:
    return {**schema, builders.GVK: [builders.gvk(*gvk)]}


def definition_name(group: str, version: str, kind: str) -> str:
    """Return the name of a mesh kind's definition.

    It begins with the reversed group, as in Kubernetes' OpenAPI documents.
    """
    return ".".join([*reversed((group or "mesh").split(".")), version, kind])


@functools.cache
def definitions() -> Mapping[str, Schema]:
    """Return all definitions by name. A `$ref` refers to another name of the same mapping."""
    return {**published(), **further_definitions(), **_further_versions(), **_own()}


@functools.lru_cache(maxsize=4)
def definitions_of(kinds: KindSet) -> Mapping[str, Schema]:
    """Return all definitions by name, with those of kinds that CustomResourceDefinitions define."""
    custom = {
        (group, version, kind.kind): kind.schema(group, version)
        for kind in kinds.kinds
        if kind.definition and kind.schema
        for group, version in kind.served_versions
    }
    return {**definitions(), **{definition_name(*gvk): _of_kind(gvk, schema) for gvk, schema in custom.items()}}


def name_of(group: str, version: str, kind: Kind) -> str:
    """Return the definition name of a kind in a version."""
    return definition_name(group, version, kind.kind) if kind.definition else names()[group, version, kind.kind]


@functools.lru_cache(maxsize=1024)
def schema_of(kind: Kind, group: str, version: str) -> Schema:
    """Return the schema of a kind in a version, with each `$ref` replaced by the schema that it refers to."""
    if kind.definition and kind.schema:
        return linked_schema(definitions(), kind.schema(group, version))
    return schemas()[group, version, kind.kind]


@functools.cache
def names() -> Mapping[GroupVersionKind, str]:
    """Return the names of definitions by (group, version, kind)."""
    return _names(definitions())


def _names(definitions: Mapping[str, Schema]) -> Mapping[GroupVersionKind, str]:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions.items()
        for gvk in schema.get(builders.GVK, ())
    }


class _LinkedSchemas(Mapping[GroupVersionKind, Schema]):
    """The schemas of all kinds. Each is linked when it is first read: a mesh has objects of few kinds."""

    def __init__(self) -> None:
        self._linked: dict[str, Schema] = {}

    def __getitem__(self, gvk: GroupVersionKind) -> Schema:
        return linked(definitions(), names()[gvk], self._linked)

    def __iter__(self) -> Iterator[GroupVersionKind]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())


@functools.cache
def schemas() -> Mapping[GroupVersionKind, Schema]:
    """Return the schemas by (group, version, kind), with each `$ref` replaced by the schema that it refers to."""
    return _LinkedSchemas()
