"""HTTPRouteGroups to matches (R11 to R15, D4 to D6)."""

from collections.abc import Iterator

from headgate.compiler.snapshot import Snapshot
from headgate.model.requests import Header, Match, Path, Text
from headgate.resources.meta import Key
from headgate.resources.registry import ROUTE_GROUP
from headgate.resources.smi import HttpMatch, HTTPRouteGroup

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
