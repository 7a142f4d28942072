"""Kinds that are neither built in nor defined: misspelled ones, which are mistakes, and foreign ones, which are left out (D34)."""

import difflib
from collections.abc import Sequence

from headgate.errors import Cause
from headgate.kinds import ACCESS, MESH, SPECS, SPLIT
from headgate.resources.inspect import GROUP as INSPECT
from headgate.resources.kind import Kind, api_version, split_api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Object
from headgate.resources.registry import BUILT_IN

_OWN_GROUPS = frozenset({ACCESS, MESH, SPECS, SPLIT, "traffic.metrics.k8s.io", INSPECT, ""})
"""The groups whose kinds are all known: headgate's, also the computed ones, SMI's, and the core group."""
_NEAR_KIND, _NEAR_GROUP = 0.84, 0.9
"""How similar names must be: `Deploymnet` is a Deployment, and a ServiceMonitor is no ServiceAccount."""
_DRAFT = "; v1alpha4 is a draft: write a TrafficTarget in v1alpha3, whose destination and sources are ServiceAccounts"
_DRAFTS = {"access.smi-spec.io/v1alpha4 TrafficTarget": _DRAFT, "IdentityBinding": _DRAFT}


def is_foreign(obj: Object, kinds: KindSet) -> bool:
    """Return whether an object has an unknown kind that is no misspelling of a known one.

    A cluster has such a kind when its CustomResourceDefinition is installed.
    """
    version, name = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(version, str) or not isinstance(name, str) or not version or not name:
        return False
    if kinds.find_written(version, name):
        return False
    group, number = split_api_version(version)
    if group in _OWN_GROUPS or "/" in group:
        return False
    in_group = [kind for kind in kinds.kinds if group in _groups_of(kind)]
    if not in_group:
        return "." in group and not _near_group(group, kinds)
    if any(number in kind.versions for kind in in_group) and _is_complete(group):
        return False
    return all(kind.kind != name for kind in in_group) and not _near(name, in_group)


def _is_complete(group: str) -> bool:
    """Return whether no CustomResourceDefinition can add a kind to a group: those without a dot belong to Kubernetes."""
    return "." not in group


def unknown_kind(version: str, name: str, kinds: KindSet = BUILT_IN) -> Cause:
    """Return the mistake of an object whose kind is unknown in its version."""
    group, _ = split_api_version(version)
    named = [kind for kind in kinds.kinds if kind.kind == name]
    if not named:
        return Cause("kind", f"{name!r} is not a kind that headgate knows; {_hint(group, name, kinds)}")
    versions = ", ".join(api_version(*pair) for kind in named for pair in kind.served_versions)
    if all(group not in _groups_of(kind) for kind in named):
        return Cause(
            "apiVersion",
            f"{name!r} of {group or 'the core group'} is not a kind that headgate knows; known versions are {versions}",
        )
    draft = _DRAFTS.get(f"{version} {name}", "")
    return Cause("apiVersion", f"{version!r} is not a version of {name}; known versions are {versions}{draft}")


def _hint(group: str, name: str, kinds: KindSet) -> str:
    if near := _near(name, kinds.kinds):
        return f"did you mean {near}?"
    if near := _near_group(group, kinds):
        return f"did you mean the group {near}?"
    in_group = sorted({kind.kind for kind in kinds.kinds if kind.group == group})
    where = f"kinds of {group or 'the core group'} are" if in_group else "known kinds are"
    some = in_group or sorted({kind.kind for kind in kinds.kinds if kind.is_of_mesh})
    return f"{where} {', '.join(some)}{_DRAFTS.get(name, '')}"


def _groups_of(kind: Kind) -> set[str]:
    return {group for group, _ in kind.served_versions}


def _near(name: str, kinds: Sequence[Kind]) -> str:
    """Return the kind of which a name is a misspelling, such as another case or a plural; empty if there is none."""
    by_lower = {kind.kind.lower(): kind.kind for kind in kinds}
    lower = name.lower()
    same = by_lower.get(lower) or by_lower.get(lower.removesuffix("s")) or by_lower.get(lower.removesuffix("es"))
    if same and same != name:
        return same
    nearest = difflib.get_close_matches(lower, [word for word in by_lower if word != lower], n=1, cutoff=_NEAR_KIND)
    return by_lower[nearest[0]] if nearest else ""


def _near_group(group: str, kinds: KindSet) -> str:
    groups = [other for other in kinds.groups if other != group]
    return next(iter(difflib.get_close_matches(group, groups, n=1, cutoff=_NEAR_GROUP)), "")
