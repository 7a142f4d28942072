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
"""`websocket`, in the letter case of the client, if it asks for it; nginx ignores upgrades to all other protocols."""
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
        headers = [self._header(item) for item in match.headers]
        if None in headers:
            return None
        paths = [self._path(item) for item in (match.path, *match.other_paths) if item]
        return tuple(dict.fromkeys((*paths, *self._methods(match), *filter(None, headers), *self._queries(match))))

    def _bit(self, source: str, *patterns: str) -> str:
        return self._variables.mapped("is", source, [(item, "1") for item in patterns], "0")

    def _path(self, wanted: Path) -> str:
        if wanted.kind == "exact":
            return self._bit(PATH, exactly(wanted.value))
        if wanted.kind == "prefix":
            return self._bit(PATH, pattern(rf"\A{re.escape(wanted.value.rstrip('/'))}(?:/|\z)"))
        return self._bit(PATH, pattern(rf"\A{_regex('path', wanted.value)}"))

    def _methods(self, match: Match) -> Iterator[str]:
        if match.methods:
            yield self._bit("$request_method", *map(exactly, match.methods))

    def _header(self, wanted: Header) -> str | None:
        what = f"header {wanted.name}"
        is_removed = wanted.name != "x-forwarded-proto" and why_removed(wanted.name, edge=self._edge)
        if is_removed or wanted.name == "host":
            return None
        if wanted.text == Text(value=""):
            message = "nginx does not distinguish an empty header from a missing one; the route gets no requests"
            raise NotExpressible(what, OmissionReason.HEADER, message)
        if wanted.name not in _SPECIAL and not _NAME.fullmatch(wanted.name):
            message = "nginx has no variable for a header with this name; the route gets no requests"
            raise NotExpressible(what, OmissionReason.HEADER, message)
        source = _SPECIAL.get(wanted.name) or f"$http_{wanted.name.replace('-', '_')}"
        if self._edge:
            source = {SCHEME: "$scheme"}.get(source, source)
        return self._bit(source, pattern(rf"\A(?!\z){_text(what, wanted.text)}"))

    def _queries(self, match: Match) -> Iterator[str]:
        for wanted in match.query:
            value = self._variables.mapped(
                "query", "$request_uri", [(pattern(first_value(wanted)), "=$headgate_value")]
            )
            yield self._bit(value, pattern(rf"\A={_text(f'query parameter {wanted.name}', wanted.text)}"))


def first_value(wanted: Query) -> str:
    """Return the expression for a request target whose group `headgate_value` is the first value of a parameter."""
    name = re.escape(wanted.name)
    before = rf"(?:(?!{name}(?:[=&]|\z))[^&]*&)*"
    return rf"\A[^?]*\?{before}{name}(?:=(?<headgate_value>[^&]*))?(?:&|\z)"


def _text(what: str, wanted: Text) -> str:
    return _regex(what, wanted.value) if wanted.regex else rf"{re.escape(wanted.value)}\z"


def _regex(what: str, value: str) -> str:
    try:
        return to_pcre(value)
    except Untranslatable as error:
        message = f"nginx's PCRE has no equal of {error} in {value!r}; the route gets no requests"
        raise NotExpressible(what, OmissionReason.REGULAR_EXPRESSION, message) from None
