"""Requests, the conditions of matches, and the changes that filters make."""

import functools
import re
from typing import Literal

from headgate.resources.meta import Value
from headgate.resources.regexes import fault

Headers = tuple[tuple[str, str], ...]
_BEGUN = re.compile(r"\(\?:(.*)\)\.\*", re.DOTALL)


def begins_with(pattern: str) -> str:
    """Return a pattern for all texts that begin with a match of a pattern, which is what a `pathRegex` means (D5)."""
    return f"(?:{pattern}).*"


@functools.lru_cache(maxsize=4096)
def begun_pattern(pattern: str) -> str:
    """Return the pattern that the user wrote if `begins_with` returned this one; empty for other patterns."""
    begun = _BEGUN.fullmatch(pattern)
    return begun[1] if begun and not fault(begun[1]) else ""  # the group of `(?:a)|(?:b).*` ends earlier


class Request(Value, frozen=True, kw_only=True):
    """A request as a client sends it.

    `target` is the path with its query; header names may be in upper or lower case. `version` is the HTTP version.
    `server_name` is the SNI of the TLS connection; None means the host of the request.
    """

    authority: str = ""
    server_name: str | None = None
    method: str = "GET"
    target: str = "/"
    headers: Headers = ()
    version: Literal["1.0", "1.1", "2"] = "1.1"


class Text(Value, frozen=True, kw_only=True, order=True):
    """A condition on a text: equality, or a regular expression (RE2) that must match completely."""

    value: str
    regex: bool = False


class Header(Value, frozen=True, kw_only=True, order=True):
    """A condition on a header, by name in lower case; several values are joined with commas."""

    name: str
    text: Text


class Query(Value, frozen=True, kw_only=True, order=True):
    """A condition on a query parameter; if a request repeats the parameter, the condition is on its first value."""

    name: str
    text: Text


class Path(Value, frozen=True, kw_only=True, order=True):
    """A condition on the path without the query.

    `value` is an exact path, a prefix that ends at a slash (`/api` fits `/api/v1`, but not `/apis`), or a regular
    expression (RE2) that must match the complete path.
    """

    kind: Literal["exact", "prefix", "regex"]
    value: str

    @property
    def written(self) -> str:
        """The path or the pattern as the user wrote it."""
        return (self.kind == "regex" and begun_pattern(self.value)) or self.value


class Match(Value, frozen=True, kw_only=True, order=True):
    """Conditions on requests, all of which must hold.

    Empty `methods` means every method. `other_paths` has conditions that the path must meet in addition to `path`.
    """

    path: Path | None = None
    other_paths: tuple[Path, ...] = ()
    methods: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    query: tuple[Query, ...] = ()


ANY = Match()


class HeaderEdit(Value, frozen=True, kw_only=True):
    """Changes to headers: `set` replaces and `add` appends (name, value) pairs; `remove` has names."""

    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class PathEdit(Value, frozen=True, kw_only=True):
    """A path rewrite: the full path, or only the prefix that the route matched."""

    kind: Literal["full", "prefix"]
    value: str


class Rewrite(Value, frozen=True, kw_only=True):
    """A rewrite of the host, the path or both in the request to the backend; empty fields change nothing."""

    hostname: str = ""
    path: PathEdit | None = None


class Redirect(Value, frozen=True, kw_only=True):
    """A redirect response; empty fields keep the value of the request, and port 0 is unset."""

    status: int = 302
    scheme: str = ""
    hostname: str = ""
    port: int = 0
    path: PathEdit | None = None


class Filters(Value, frozen=True, kw_only=True):
    """Changes to requests and responses at a route, or at one of its backends."""

    request: HeaderEdit | None = None
    response: HeaderEdit | None = None
    rewrite: Rewrite | None = None


NO_FILTERS = Filters()


class Timeouts(Value, frozen=True, kw_only=True):
    """Timeouts in milliseconds: `request` for the complete request, `backend` for each attempt; 0 means no limit."""

    request: int = 0
    backend: int = 0

    @property
    def shortest(self) -> int:
        """The shorter limit; 0 if there is none."""
        return min(filter(None, (self.request, self.backend)), default=0)
