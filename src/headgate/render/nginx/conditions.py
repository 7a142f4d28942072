"""Conditions of routes as variables of nginx, which are 1 for requests that meet them and 0 for the rest."""

import re
from collections.abc import Iterator

from headgate.model.requests import Header, Match, Path, Query, Text
from headgate.model.sanitizing import why_removed
from headgate.render.nginx.regexes import Untranslatable, to_pcre
from headgate.render.nginx.syntax import Variables, exactly, pattern
from headgate.render.omissions import NotExpressible, OmissionReason

PATH = "$headgate_path"
AUTHORITY = "$headgate_authority"
UPGRADE = "$headgate_upgrade"
"""`websocket`, in the letter case of the client, if it requests it; nginx ignores upgrades to all other protocols."""
SCHEME = "$headgate_forwarded_proto"
TE = "$headgate_te"
_SPECIAL = {
    ":authority": AUTHORITY,
    "connection": "$headgate_upgrade_connection",
    "te": TE,
    "upgrade": UPGRADE,
    "x-forwarded-proto": SCHEME,
}
"""Headers that a proxy changes before it matches them (model/sanitizing.py)."""
_NAME = re.compile(r"[a-z0-9_-]+")


class Conditions:
    """Defines the variables of conditions; `edge` is as in `Host`."""

    def __init__(self, variables: Variables, *, edge: bool) -> None:
        self._variables = variables
        self._edge = edge

    def of(self, match: Match) -> tuple[str, ...] | None:
        """Return the variables of a match, all of which must be 1; None if no request can meet it.

        Raises NotExpressible.
        """
        headers = [self._header(header) for header in match.headers]
        if None in headers:
            return None
        paths = [self._path(path) for path in (match.path, *match.other_paths) if path]
        return tuple(dict.fromkeys((*paths, *self._methods(match), *filter(None, headers), *self._queries(match))))

    def _bit(self, source: str, *patterns: str) -> str:
        return self._variables.mapped("is", source, [(pattern, "1") for pattern in patterns], "0")

    def _path(self, path: Path) -> str:
        if path.kind == "exact":
            return self._bit(PATH, exactly(path.value))
        if path.kind == "prefix":
            return self._bit(PATH, pattern(rf"\A{re.escape(path.value.rstrip('/'))}(?:/|\z)"))
        return self._bit(PATH, pattern(rf"\A{_regex('path', path.value)}"))

    def _methods(self, match: Match) -> Iterator[str]:
        if match.methods:
            yield self._bit("$request_method", *map(exactly, match.methods))

    def _header(self, header: Header) -> str | None:
        what = f"header {header.name}"
        is_removed = header.name != "x-forwarded-proto" and why_removed(header.name, edge=self._edge)
        if is_removed or header.name == "host":
            return None
        if header.text == Text(value=""):
            message = "nginx does not distinguish an empty header from a missing one; the route gets no requests"
            raise NotExpressible(what, OmissionReason.HEADER, message)
        if header.name not in _SPECIAL and not _NAME.fullmatch(header.name):
            message = "nginx has no variable for a header with this name; the route gets no requests"
            raise NotExpressible(what, OmissionReason.HEADER, message)
        source = _SPECIAL.get(header.name) or f"$http_{header.name.replace('-', '_')}"
        if self._edge:
            source = {SCHEME: "$scheme"}.get(source, source)
        return self._bit(source, pattern(rf"\A(?!\z){_text(what, header.text)}"))

    def _queries(self, match: Match) -> Iterator[str]:
        for query in match.query:
            value = self._variables.mapped("query", "$request_uri", [(pattern(first_value(query)), "=$headgate_value")])
            yield self._bit(value, pattern(rf"\A={_text(f'query parameter {query.name}', query.text)}"))


def first_value(query: Query) -> str:
    """Return the expression for a request target whose group `headgate_value` is the first value of a parameter."""
    name = re.escape(query.name)
    before = rf"(?:(?!{name}(?:[=&]|\z))[^&]*&)*"
    return rf"\A[^?]*\?{before}{name}(?:=(?<headgate_value>[^&]*))?(?:&|\z)"


def _text(what: str, text: Text) -> str:
    return _regex(what, text.value) if text.regex else rf"{re.escape(text.value)}\z"


def _regex(what: str, value: str) -> str:
    try:
        return to_pcre(value)
    except Untranslatable as error:
        message = f"nginx's PCRE has no equal of {error} in {value!r}; the route gets no requests"
        raise NotExpressible(what, OmissionReason.REGULAR_EXPRESSION, message) from None
