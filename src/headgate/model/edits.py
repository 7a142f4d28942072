"""What a request looks like when it arrives at a backend: as the filters of its route and of its share leave it."""

from collections.abc import Iterable

from msgspec import structs

from headgate.model.filters import Filters, HeaderEdit, PathEdit
from headgate.model.matching import Path
from headgate.model.request import Headers, Request
from headgate.model.routing import Route

_HOST = "host"


def arriving(request: Request, route: Route, share: Filters) -> Request:
    """Return the request as a backend gets it; the changes of its share come after those of the route."""
    for filters in (route.filters, share):
        request = _edited(request, filters, route.match.path)
    return request


def _edited(request: Request, filters: Filters, matched: Path | None) -> Request:
    edit, rewrite = filters.request or HeaderEdit(), filters.rewrite
    named = [value for name, value in (*edit.set, *edit.add) if name.lower() == _HOST]
    host = (rewrite.hostname if rewrite else "") or "".join(named[:1])
    path = rewrite.path if rewrite else None
    return structs.replace(
        request,
        authority=host or request.authority,
        target=_with_path(request.target, path, matched) if path else request.target,
        headers=_with_headers(request.headers, edit),
    )


def _with_headers(headers: Headers, edit: HeaderEdit) -> Headers:
    gone = _lower([*(name for name, _ in edit.set), *edit.remove])
    new = tuple(item for item in (*edit.set, *edit.add) if item[0].lower() != _HOST)
    return (*(item for item in headers if item[0].lower() not in gone), *new)


def _with_path(target: str, edit: PathEdit, matched: Path | None) -> str:
    """Return another path with the same query."""
    path, mark, query = target.partition("?")
    new = edit.value if edit.value.startswith("/") else f"/{edit.value}"
    return (new if edit.kind == "full" else _with_prefix(path, new.rstrip("/"), matched)) + mark + query


def _with_prefix(path: str, new: str, matched: Path | None) -> str:
    """Return a path with other segments instead of those that the route matched; there is always one slash between."""
    old = matched.value.rstrip("/") if matched and matched.kind == "prefix" else ""
    rest = path.removeprefix(old)
    return f"{new}{rest}" if old and new else f"{new}/{rest.lstrip('/')}"


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}
