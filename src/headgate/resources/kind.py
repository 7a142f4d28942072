"""The value in which the room of a kind ends: everything that headgate knows about the kind.

Every table over kinds is derived from these values: `registry` lists them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from headgate.errors import Cause
from headgate.kinds import ACCESS, EXPERIMENTAL, GATEWAY, MESH, SPECS, SPLIT, KindNames
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.meta import Key, Object, Resource, Value
from headgate.resources.schema.builders import Schema

MESH_CATEGORY = "headgate"
"""The category of the kinds whose definitions headgate installs: `kubectl get headgate` lists their objects."""
CUSTOM_GROUPS = (SPLIT, SPECS, ACCESS, GATEWAY, EXPERIMENTAL, MESH)


class Conversion(NamedTuple):
    """The conversion of a kind between its versions; both functions take an object and the other version.

    The `apiVersion` of the object is that of the result already.
    """

    to_hub: Callable[[Object, str], Object]
    from_hub: Callable[[Object, str], Object]


class ReadyBy(Enum):
    """Where a status says whether an object is active."""

    GENERATION = "observedGeneration and conditions"
    CONDITIONS = "conditions"
    PARENTS = "the conditions at each parent"
    ANCESTORS = "the conditions at each ancestor"
    REPLICAS = "the replicas of a Deployment"


class Kind(msgspec.Struct, frozen=True, eq=False):
    """A kind. `versions[0]` is the hub: the version that the store holds and that discovery prefers.

    - `aliases`: further pairs of group and version that clients may use.
    - `shape`: the type of decoded objects; None if headgate only stores them.
    - `schema`: returns the schema by group and version; None if the schema is published (`schema.catalog`).
    - `checks`: yields the mistakes that the schema can't express, in any version.
    - `unread`: the fields that headgate does not read. Before their schemas were published, any content could be stored
      in them.
    - `left_out`: a field of the spec that an object with mistakes in it loses, so that the rest is in effect; it is in `unread` too.
    - `unversioned`: whether examples in the specifications write it without `apiVersion` (000, 001, 003; D27).
    - `annotations`: the keys with the prefix `headgate.dev/` that have an effect on the kind only, or on few kinds.
    - `fields_of_annotations`: its fields that have the effect of an annotation of other kinds, by the key of the annotation.
    - `recorded`: whether the history records its objects: users write them to direct and protect traffic.
    - `unrestored`: the fields of its spec that a rollback leaves as they are: they belong to the present object.
    - `status`: whether it has a status; `subresources`: further subresources.
    - `categories`: the categories in API discovery, by which `kubectl get` lists several kinds: `all`, `headgate`.
    - `deletes_collection`: whether many objects can be deleted at once.
    - `unserved`: subresources of Kubernetes that the embedded API does not have.
    - `selectable`: the fields that field selectors may name, besides the name and the namespace.
    - `always_present`: the fields that every object has in Kubernetes: no manager owns such a field alone.
    - `listeners`: the protocols of the listeners to which it can be attached, if it is a route of the Gateway API.
    - `ready_by`: where the status says whether all proxies have acknowledged an object; None if no such status is written.
    - `loss`: what ends with an object besides its own purpose, as a sentence for users.
    - `definition`: the name of the CustomResourceDefinition that defines the kind; empty for a built-in kind.
    - `without_effect`: that headgate only stores the objects, as a sentence for users; empty for a kind with an effect.
    - `requires_fields`: whether the required fields of its schema are checked; a kind with `checks` has checks for them.
    """

    names: KindNames
    versions: tuple[str, ...] = ("v1",)
    aliases: tuple[tuple[str, str], ...] = ()
    shape: type[Resource] | None = None
    schema: Callable[[str, str], Schema] | None = None
    checks: Callable[[Object], Iterator[Cause]] | None = None
    conversion: Conversion | None = None
    columns: tuple[Column, ...] = (NAME, AGE)
    unread: re.Pattern[str] | None = None
    left_out: str = ""
    unversioned: bool = False
    annotations: frozenset[str] = frozenset()
    fields_of_annotations: Mapping[str, str] = {}
    recorded: bool = False
    unrestored: tuple[str, ...] = ()
    status: bool = False
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    deletes_collection: bool = True
    unserved: frozenset[str] = frozenset()
    selectable: frozenset[str] = frozenset()
    always_present: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    ready_by: ReadyBy | None = None
    loss: str = ""
    definition: str = ""
    without_effect: str = ""
    requires_fields: bool = False

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.names.group

    @property
    def kind(self) -> str:
        """The name of the kind, as in `kind: Service`."""
        return self.names.kind

    @property
    def plural(self) -> str:
        """The resource name in paths."""
        return self.names.plural

    @property
    def namespaced(self) -> bool:
        """Whether objects are in a namespace."""
        return self.names.namespaced

    @property
    def hub(self) -> str:
        """The apiVersion in which objects of the kind are stored."""
        return api_version(self.group, self.versions[0])

    @property
    def is_custom(self) -> bool:
        """Whether the kind is a custom resource on a cluster: unknown fields are pruned, patches have no merge keys."""
        return bool(self.definition) or self.is_of_mesh

    @property
    def is_of_mesh(self) -> bool:
        """Whether headgate carries out the kind, which Kubernetes does not have: unknown fields in files are mistakes."""
        return not self.definition and self.group in CUSTOM_GROUPS

    @property
    def served_versions(self) -> Sequence[tuple[str, str]]:
        """Every group and version that clients may use for the kind; aliases come last."""
        return [*((self.group, version) for version in self.versions), *self.aliases]

    def key(self, namespace: str, name: str) -> Key:
        """Return the key for an object of the kind."""
        return Key(self.group, self.kind, namespace if self.namespaced else "", name)


def api_version(group: str, version: str) -> str:
    """Return the `apiVersion` of a group and a version: `v1`, `apps/v1`."""
    return f"{group}/{version}" if group else version


def split_api_version(text: str) -> tuple[str, str]:
    """Return the group and the version of an `apiVersion`."""
    group, _, version = text.rpartition("/")
    return group, version


class ServedKind(Value, frozen=True, kw_only=True):
    """A kind in one of its versions, as the API serves it."""

    kind: Kind
    group: str
    version: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the kind's objects in this version."""
        return api_version(self.group, self.version)

    @property
    def plural(self) -> str:
        """The resource name in paths. An alias has its own name, because kubectl rejects ambiguous names."""
        return self.kind.plural if self.group == self.kind.group else f"bare{self.kind.plural}"

    @property
    def short(self) -> tuple[str, ...]:
        """The short names for kubectl; an alias has none."""
        return self.kind.names.short if self.group == self.kind.group else ()

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in API discovery; an alias has none, because its objects would be listed twice."""
        return self.kind.categories if self.group == self.kind.group else ()

    @property
    def is_hub(self) -> bool:
        """Whether this is the version that the store holds."""
        return self.api_version == self.kind.hub

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the resource in API discovery."""
        many = ("deletecollection",) if self.kind.deletes_collection else ()
        return ("create", "delete", *many, "get", "list", "patch", "update", "watch")

    @property
    def subresources(self) -> tuple[str, ...]:
        """The subresources that have a path of their own, such as `status`."""
        return (*(("status",) if self.kind.status else ()), *self.kind.subresources)
