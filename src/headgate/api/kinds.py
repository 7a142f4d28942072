"""What the embedded API serves: each kind in each of its versions, found by the path of a request."""

import functools
from collections.abc import Mapping

from headgate.resources.meta import Value
from headgate.resources.registry import KINDS, Kind, api_version

_SCALED = frozenset({"Deployment", "ReplicaSet"})
_ALL = frozenset({"Pod", "Service", "Deployment", "ReplicaSet"})  # what `kubectl get all` shows
_PER_OBJECT = frozenset({"Namespace", "Service"})  # can't be deleted as a collection, as in Kubernetes


class Served(Value, frozen=True, kw_only=True):
    """One kind in one version."""

    kind: Kind
    group: str
    version: str

    @property
    def api_version(self) -> str:
        """Group and version as objects carry them."""
        return api_version(self.group, self.version)

    @property
    def plural(self) -> str:
        """The name in paths. An alias gets another one: two resources called alike would make short names ambiguous."""
        return self.kind.plural if self.group == self.kind.group else f"bare{self.kind.plural}"

    @property
    def qualified(self) -> str:
        """The name in messages: `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def short(self) -> tuple[str, ...]:
        """The short names that kubectl offers."""
        return self.kind.short if self.group == self.kind.group else ()

    @property
    def categories(self) -> tuple[str, ...]:
        """The groups of resources that kubectl knows it by."""
        return ("all",) if self.kind.kind in _ALL else ()

    @property
    def is_hub(self) -> bool:
        """Whether the store holds objects just like this."""
        return self.api_version == self.kind.hub

    @property
    def verbs(self) -> tuple[str, ...]:
        """What can be done with the resource."""
        many = () if self.kind.kind in _PER_OBJECT else ("deletecollection",)
        return ("create", "delete", *many, "get", "list", "patch", "update", "watch")

    @property
    def subresources(self) -> tuple[str, ...]:
        """The parts of an object that have a path of their own."""
        names = ["status"] if self.kind.status else []
        names += ["scale"] if self.kind.kind in _SCALED else []
        names += ["log", "eviction"] if self.kind.kind == "Pod" else []
        return tuple(names)


@functools.cache
def groups() -> Mapping[str, Mapping[str, tuple[Served, ...]]]:
    """Return group -> version -> resources; the first version of a group is the preferred one."""
    found: dict[str, dict[str, list[Served]]] = {"": {"v1": []}}
    for kind in KINDS:
        for group, version in (*((kind.group, version) for version in kind.versions), *kind.aliases):
            found.setdefault(group, {}).setdefault(version, []).append(Served(kind=kind, group=group, version=version))
    return {group: {version: tuple(served) for version, served in found[group].items()} for group in found}


@functools.cache
def by_path() -> Mapping[tuple[str, str, str], Served]:
    """Return (group, version, plural) -> resource; an alias answers to the kind's usual plural too."""
    every = [served for versions in groups().values() for many in versions.values() for served in many]
    named = {(served.group, served.version, served.kind.plural): served for served in every}
    return named | {(served.group, served.version, served.plural): served for served in every}
