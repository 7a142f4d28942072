"""Which requests a route is for. Everything that is given must fit; nothing given fits every request."""

from typing import Literal

from headgate.resources.meta import Value


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
