"""The kinds that an API serves, found by their names in objects and paths."""

from collections.abc import Mapping, Sequence

from headgate.resources.kind import Kind, ServedKind, split_api_version
from headgate.resources.meta import Object


class KindSet:
    """An immutable set of kinds. Of kinds with the same name in a group, the first one counts.

    `definitions` has the CustomResourceDefinitions of the kinds that are not built in, in order. Sets with equal definitions
    are equal.
    """

    def __init__(self, kinds: Sequence[Kind], definitions: Sequence[Object] = ()) -> None:
        self.kinds = tuple(kinds)
        self.definitions = tuple(definitions)
        self.groups = _groups(self.kinds)
        """Group -> version -> kinds; the first version of a group is the preferred one."""
        served = [
            served_kind for versions in self.groups.values() for many in versions.values() for served_kind in many
        ]
        self._by_kind = {(kind.group, kind.kind): kind for kind in reversed(self.kinds)}
        self._by_definition = {kind.definition: kind for kind in self.kinds if kind.definition}
        self._by_version = {
            (served_kind.group, served_kind.version, served_kind.kind.kind): served_kind.kind
            for served_kind in reversed(served)
        }
        self._by_path = {
            (served_kind.group, served_kind.version, served_kind.kind.plural): served_kind
            for served_kind in reversed(served)
        } | {
            (served_kind.group, served_kind.version, served_kind.plural): served_kind
            for served_kind in reversed(served)
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KindSet) and self.definitions == other.definitions

    def __hash__(self) -> int:
        return hash(tuple(definition["metadata"]["name"] for definition in self.definitions))

    def find(self, group: str, kind: str) -> Kind | None:
        """Return a kind by its group and name; None if it is unknown."""
        return self._by_kind.get((group, kind))

    def find_written(self, api_version: str, kind: str) -> Kind | None:
        """Return a kind by the `apiVersion` and `kind` of an object, in any version or alias; None if unknown."""
        return self._by_version.get((*split_api_version(api_version), kind))

    def defined_by(self, definition: str) -> Kind | None:
        """Return the kind of a CustomResourceDefinition by its name; None if it is unknown or built in."""
        return self._by_definition.get(definition)

    def served_at(self, group: str, version: str, plural: str) -> ServedKind | None:
        """Return the kind that a path names; None if unknown. An alias also accepts the kind's usual plural."""
        return self._by_path.get((group, version, plural))


def _groups(kinds: Sequence[Kind]) -> Mapping[str, Mapping[str, tuple[ServedKind, ...]]]:
    groups: dict[str, dict[str, tuple[ServedKind, ...]]] = {"": {"v1": ()}}
    for kind in kinds:
        for group, version in kind.served_versions:
            versions = groups.setdefault(group, {})
            versions[version] = (*versions.get(version, ()), ServedKind(kind=kind, group=group, version=version))
    return groups
