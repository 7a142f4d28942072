"""Requests as their clients send them, conditions on them, and what is changed of them on their way."""

from typing import Literal

from headgate.resources.meta import Value

Headers = tuple[tuple[str, str], ...]


class Request(Value, frozen=True, kw_only=True):
    """A request as a client sends it: `target` is the path with its query, names of headers are in any case.

    `version` is the version of HTTP on the connection, `server_name` the name that a TLS connection was opened for (SNI);
    none is the host of the request.
    """

    authority: str = ""
    server_name: str | None = None
    method: str = "GET"
    target: str = "/"
    headers: Headers = ()
    version: Literal["1.0", "1.1", "2"] = "1.1"


class Text(Value, frozen=True, kw_only=True, order=True):
    """A text that must be equal, or a regular expression (RE2) that must match all of it."""

    value: str
    regex: bool = False


class Header(Value, frozen=True, kw_only=True, order=True):
    """A header, by its name in lower case; several values count as one, joined by commas."""

    name: str
    text: Text


class Query(Value, frozen=True, kw_only=True, order=True):
    """A query parameter; of several with the name, the first counts."""

    name: str
    text: Text


class Path(Value, frozen=True, kw_only=True, order=True):
    """The path without the query: equal, beginning with whole segments, or matched as a whole by an expression (RE2)."""

    kind: Literal["exact", "prefix", "regex"]
    value: str


class Match(Value, frozen=True, kw_only=True, order=True):
    """Requests. No methods are all methods; `other_paths` are conditions on the path besides `path`."""

    path: Path | None = None
    other_paths: tuple[Path, ...] = ()
    methods: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    query: tuple[Query, ...] = ()


ANY = Match()


class HeaderEdit(Value, frozen=True, kw_only=True):
    """Changes of headers: `set` replaces, `add` appends, each as (name, value); `remove` are names."""

    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


class PathEdit(Value, frozen=True, kw_only=True):
    """A new path: all of it, or instead of the prefix that the route matched."""

    kind: Literal["full", "prefix"]
    value: str


class Rewrite(Value, frozen=True, kw_only=True):
    """Another host or path for the backend."""

    hostname: str = ""
    path: PathEdit | None = None


class Redirect(Value, frozen=True, kw_only=True):
    """The answer is another address; what is empty stays as the request has it. Port 0 is none of its own."""

    status: int = 302
    scheme: str = ""
    hostname: str = ""
    port: int = 0
    path: PathEdit | None = None


class Filters(Value, frozen=True, kw_only=True):
    """Changes that a route, or one of its backends, makes."""

    request: HeaderEdit | None = None
    response: HeaderEdit | None = None
    rewrite: Rewrite | None = None


NO_FILTERS = Filters()


class Timeouts(Value, frozen=True, kw_only=True):
    """Milliseconds for the whole request, and for each attempt at a backend; 0 is no limit."""

    request: int = 0
    backend: int = 0
