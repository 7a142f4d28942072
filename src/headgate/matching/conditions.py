"""Conditions on single parts of a request, with the texts that each part can have when routes and rules see it."""

from collections.abc import Iterator
from typing import Literal as Choice
from typing import NamedTuple

from headgate.matching.patterns import Parser, beginning, common_start, sample
from headgate.matching.regular import Algebra, Expression
from headgate.model.ambiguous_paths import AMBIGUOUS_PATH, OTHER_SPELLING, OTHER_SPELLING_IN_ASCII
from headgate.model.evaluate import path_fits, text_fits
from headgate.model.requests import Match, Path, Text
from headgate.model.sanitizing import why_removed

AUTHORITY, FORWARDED_PROTO, CERTIFICATE = ":authority", "x-forwarded-proto", "x-forwarded-client-cert"
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE", "SEARCH", "PURGE")
"""Methods of examples, those that users know first. CONNECT is missing: proxies refuse it before they route."""


class Dimension(NamedTuple):
    """A part of a request: its path, its method, a header or a query parameter by name."""

    part: Choice["path", "method", "header", "query"]
    name: str = ""


class Test(NamedTuple):
    """A condition on the text of one part.

    `exact` is equality, `prefix` a path prefix that ends at a slash, `begins` any prefix, `regex` a regular expression
    (RE2) for the whole text, and `one of` a list of methods, separated by spaces.
    """

    kind: Choice["exact", "prefix", "begins", "regex", "one of"]
    value: str

    def fits(self, text: str) -> bool:
        """Return whether a text meets the condition."""
        if self.kind == "exact":
            return text == self.value
        if self.kind == "begins":
            return text.startswith(self.value)
        if self.kind == "one of":
            return text in self.value.split(" ")
        if self.kind == "prefix":
            return path_fits(Path(kind="prefix", value=self.value), text)
        return text.startswith(self.start) and text_fits(Text(value=self.value, regex=True), text)

    @property
    def start(self) -> str:
        """The text with which all texts begin that meet the condition; empty if there is none."""
        if self.kind == "regex":
            return common_start(self.value)
        return "" if self.kind == "one of" else self.value

    def node(self, algebra: Algebra) -> Expression:
        """Return the condition as an expression. Raises Undecided for syntax that the parser does not know."""
        if self.kind == "regex":
            return Parser(algebra, self.value).parse()
        if self.kind == "exact":
            return algebra.text(self.value)
        if self.kind == "begins":
            return algebra.join(algebra.text(self.value), algebra.everything)
        below = algebra.join(algebra.text("/"), algebra.everything)
        return algebra.join(algebra.text(self.value), algebra.any_of((algebra.epsilon, below)))

    def examples(self) -> Iterator[str]:
        """Yield texts that probably meet the condition, short ones first."""
        if self.kind == "regex":
            example = sample(self.value)
            yield from () if example is None else (example, f"{example}/other", f"{example}other", f"{example}1")
        else:
            yield self.value
            if self.kind != "exact":
                yield from (f"{self.value}/", f"{self.value}/other")
            if self.kind == "begins":
                yield from (f"{self.value}1", f"{self.value}other")


class Literal(NamedTuple):
    """A condition that a part of a request must meet, or must not meet if `holds` is False."""

    dimension: Dimension
    test: Test
    holds: bool = True

    @property
    def opposite(self) -> "Literal":
        """The opposite condition."""
        return self._replace(holds=not self.holds)


Conjunction = tuple[Literal, ...]
PATH, METHOD = Dimension("path"), Dimension("method")
UNAMBIGUOUS = Literal(PATH, Test("regex", f".*(?:{AMBIGUOUS_PATH}).*"), holds=False)


def conjunction(match: Match) -> Conjunction:
    """Return a match as conditions on parts."""
    paths = (path_test(path) for path in (match.path, *match.other_paths) if path)
    literals = [Literal(PATH, test) for test in paths]
    if match.methods:
        literals.append(Literal(METHOD, Test("one of", " ".join(match.methods))))
    literals += [Literal(Dimension("header", header.name), _text_test(header.text)) for header in match.headers]
    literals += [Literal(Dimension("query", parameter.name), _text_test(parameter.text)) for parameter in match.query]
    return tuple(dict.fromkeys(literals))


def path_test(path: Path) -> Test:
    """Return a condition on the path."""
    if path.kind == "regex":
        in_ascii = OTHER_SPELLING_IN_ASCII if path.value == OTHER_SPELLING else path.value
        return _text_test(Text(value=in_ascii, regex=True))
    return Test("prefix", path.value.rstrip("/")) if path.kind == "prefix" else Test("exact", path.value)


def _text_test(text: Text) -> Test:
    start = beginning(text.value) if text.regex else None
    if start is not None:
        return Test("begins", start)
    return Test("regex" if text.regex else "exact", text.value)


class Domain(NamedTuple):
    """The texts that a part can have: those of a regular expression (RE2). A header can also be absent if `optional`."""

    pattern: str
    optional: bool = False
    usual: tuple[str, ...] = ()


_HOST_CHARACTERS = r"[!$-.0-;=@A-Z\[\]_a-z~]*"
_VALUE = r"(?:[!-~](?:[\t -~]*[!-~])?)?"
_NEVER = Domain(r"[^\x00-\xff]", optional=True)
_REFERER = (
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,4})?(?:[/?][!-\"$-~]*)?"
    r"|[A-Za-z0-9._~%!$&'()*+,;=@?-]*(?:/[A-Za-z0-9._~%!$&'()*+,;=:@/?-]*)?"
)
_SPECIAL = {
    "te": Domain("trailers", optional=True),
    "connection": Domain("[Uu]pgrade", optional=True),
    "upgrade": Domain("(?i)websocket", optional=True),
    "referer": Domain(_REFERER, optional=True, usual=("http://other/",)),
    "content-length": Domain("[0-9]+", optional=True, usual=("0",)),
    CERTIFICATE: _NEVER,
}


class Setting(NamedTuple):
    """Where requests arrive: at a Gateway (`edge`), over TLS (`secure`); at a workload, from a caller by a `certificate`.

    `certificate` is a regular expression for the header about the caller.
    Examples have one of the `authorities` if they can.
    """

    edge: bool = False
    secure: bool = False
    certificate: str = ""
    authorities: tuple[str, ...] = ("other.example",)

    def domain(self, dimension: Dimension) -> Domain:
        """Return the texts that a part of a request can have."""
        if dimension.part == "path":
            return Domain('/[!-"$->@-~]*', usual=("/", "/other"))
        if dimension.part == "query":
            usable = dimension.name and not set(dimension.name) & set("&#=?") and dimension.name.isprintable()
            return Domain("[!-\"$-%'-~]*", optional=True, usual=("other", "")) if usable else _NEVER
        return self._header(dimension.name)

    def _header(self, name: str) -> Domain:
        if name == AUTHORITY:
            return Domain(_HOST_CHARACTERS, usual=self.authorities)
        if name == FORWARDED_PROTO:
            scheme = "https" if self.secure else "http"
            return Domain(scheme, usual=(scheme,)) if self.edge else Domain(rf"[!-~]{_VALUE}", usual=(scheme,))
        if name == CERTIFICATE and self.certificate:
            return Domain(self.certificate)
        if why_removed(name, edge=self.edge) or name == "host" or name.startswith(":"):
            return _NEVER
        return _SPECIAL.get(name) or Domain(_VALUE, optional=True, usual=("other", "1", ""))
