"""What the names in users' objects mean: Services (R2, R29, D12), and HTTPRouteGroups (R11 to R15, D4 to D6)."""

from collections.abc import Iterator

from headgate.compiler.snapshot import Snapshot
from headgate.model.requests import Header, Match, Path, Text
from headgate.resources.meta import Key
from headgate.resources.registry import ROUTE_GROUP, SERVICE
from headgate.resources.smi import HttpMatch, HTTPRouteGroup


def service_key(name: str) -> Key:
    """Point at a Service given as `namespace/name`."""
    return SERVICE.key(*name.split("/"))


def missing(name: str, written: str) -> str:
    """Say that a Service is not found; `name` is what `service_name` returns for the written name."""
    if name:
        return f"Service {name} not found"
    return f"{written} is not the name of a Service in this cluster; write NAME, NAME.NAMESPACE or NAME.NAMESPACE.svc"


def permitted(snapshot: Snapshot, about: Key, target: str, *, kind: str = "Service") -> bool:
    """Say whether `about` may refer to a Service (or Secret): in its own namespace always, else by a ReferenceGrant."""
    namespace, name = target.split("/")
    if namespace == about.namespace:
        return True
    source = (about.group, about.kind, about.namespace)
    return any(
        any((item.group, item.kind, item.namespace) == source for item in grant.spec.from_)
        and any((to.group, to.kind) == ("", kind) and to.name in {"", name} for to in grant.spec.to)
        for grant in snapshot.grants.get(namespace, ())
    )


def grant_hint(about: Key, target: str, *, kind: str = "Service") -> str:
    """Tell the user which ReferenceGrant would allow the reference."""
    namespace, name = target.split("/")
    return (
        f"create a ReferenceGrant in the namespace {namespace} from group {about.group}, kind {about.kind}, namespace "
        f"{about.namespace} to kind {kind}, name {name}"
    )


ANY_METHOD = "*"


def group_key(namespace: str, name: str) -> Key:
    """Point at a group."""
    return ROUTE_GROUP.key(namespace, name)


def named_matches(snapshot: Snapshot, key: Key) -> Iterator[tuple[str, Match]]:
    """Yield the matches of a group with their names; none when it does not exist or can't be used."""
    group = snapshot.objects.get(key)
    for item in group.spec.matches if isinstance(group, HTTPRouteGroup) else ():
        yield f"{key.name}/{item.name}", to_match(item)


def to_match(item: HttpMatch) -> Match:
    """Translate one match. A path is anchored at its start only, a header's value is matched as a whole (D5)."""
    path = Path(kind="regex", value=f"(?:{item.path_regex}).*") if item.path_regex else None
    methods = tuple(sorted(set(item.methods or ())))
    headers = ((name.lower(), pattern) for name, pattern in (item.headers or {}).items())
    return Match(
        path=path,
        methods=() if ANY_METHOD in methods else methods,
        headers=tuple(
            Header(name=":authority" if name == "host" else name, text=Text(value=pattern, regex=True))
            for name, pattern in sorted(headers)
        ),
    )
