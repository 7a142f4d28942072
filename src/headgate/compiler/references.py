"""Resolve references in users' objects: Services (R2, R29, D12) and HTTPRouteGroups (R11 to R15, D4 to D6)."""

from collections.abc import Iterator

from headgate.compiler.snapshot import Snapshot
from headgate.model.requests import Header, Match, Path, Text, begins_with
from headgate.resources.meta import Key
from headgate.resources.registry import BACKEND, ROUTE_GROUP, SERVICE
from headgate.resources.smi.http_route_group import HttpMatch, HTTPRouteGroup

EXTERNAL_SUFFIX = ".xbackend"  # no name of a Service has a dot


def service_key(name: str) -> Key:
    """Return the key of a Service given as `namespace/name`, or that of the XBackend that the name stands for."""
    namespace, own = name.split("/")
    is_external = own.endswith(EXTERNAL_SUFFIX)
    return BACKEND.key(namespace, own.removesuffix(EXTERNAL_SUFFIX)) if is_external else SERVICE.key(namespace, own)


def external_service(key: Key) -> str:
    """Return the `namespace/name` that stands for an XBackend where the model names a Service."""
    return f"{key.namespace}/{key.name}{EXTERNAL_SUFFIX}"


def missing(name: str, written: str) -> str:
    """Return the message for a Service that does not exist.

    `name` is `namespace/name` of the Service; empty if the name in the object is not a valid Service name.
    """
    if name:
        return f"Service {name} not found"
    return f"{written} is not the name of a Service in this cluster; write NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc"


def permitted(snapshot: Snapshot, about: Key, target: str, *, kind: str = "Service", group: str = "") -> bool:
    """Return whether the object `about` may refer to a Service (or another kind) given as `namespace/name`.

    A reference to another namespace needs a ReferenceGrant there.
    """
    namespace, name = target.split("/")
    if namespace == about.namespace:
        return True
    source = (about.group, about.kind, about.namespace)
    return any(
        any((from_.group, from_.kind, from_.namespace) == source for from_ in grant.spec.from_)
        and any((to.group, to.kind) == (group, kind) and to.name in {"", name} for to in grant.spec.to)
        for grant in snapshot.grants.get(namespace, ())
    )


def grant_hint(about: Key, target: str, *, kind: str = "Service") -> str:
    """Return the ReferenceGrant that would allow the reference, as advice in a message."""
    namespace, name = target.split("/")
    return (
        f"create a ReferenceGrant in the namespace {namespace} from group {about.group}, kind {about.kind}, namespace "
        f"{about.namespace} to kind {kind}, name {name}"
    )


ANY_METHOD = "*"


def group_key(namespace: str, name: str) -> Key:
    """Return the key of an HTTPRouteGroup."""
    return ROUTE_GROUP.key(namespace, name)


def named_matches(snapshot: Snapshot, key: Key) -> Iterator[tuple[str, Match]]:
    """Yield the matches of an HTTPRouteGroup with their names (`group/match`); none for a missing or invalid group."""
    group = snapshot.objects.get(key)
    for match in group.spec.matches if isinstance(group, HTTPRouteGroup) else ():
        yield f"{key.name}/{match.name}", to_match(match)


def to_match(http_match: HttpMatch) -> Match:
    """Translate one match of an HTTPRouteGroup.

    A path is anchored at its start only; a header's value must match completely (D5).
    """
    path = Path(kind="regex", value=begins_with(http_match.path_regex)) if http_match.path_regex else None
    methods = tuple(sorted(set(http_match.methods or ())))
    headers = ((name.lower(), pattern) for name, pattern in (http_match.headers or {}).items())
    return Match(
        path=path,
        methods=() if ANY_METHOD in methods else methods,
        headers=tuple(
            Header(name=":authority" if name == "host" else name, text=Text(value=pattern, regex=True))
            for name, pattern in sorted(headers)
        ),
    )
