"""Conditions of routes as HAProxy's ACLs.

A header condition compares all values of the header, joined with commas. HAProxy's samples are single values, so a
variable collects them, up to `MOST_VALUES`; a request with more values gets 400.
"""

import re
from collections.abc import Iterator, Mapping

from headgate.model.requests import Header, Match, Path, Query, Text
from headgate.render.haproxy.expressions import first_parameter, translated, whole
from headgate.render.haproxy.words import is_writable, word
from headgate.render.omissions import NotExpressible, OmissionReason

MOST_VALUES = 4
_AUTHORITY = ":authority"
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_METHODS_OF_A_LINE = 16  # HAProxy reads at most 64 words of a line
_MOST_CONDITIONS = 48


def check(match: Match) -> None:
    """Raise NotExpressible for a condition that HAProxy can't check."""
    if len(_paths(match)) + len(match.headers) + len(match.query) > _MOST_CONDITIONS:
        raise _fault(f"the match has more than {_MOST_CONDITIONS} conditions, which do not fit on a line of HAProxy")
    for header in match.headers:
        if not _TOKEN.fullmatch(_field(header.name)):
            raise _fault(
                f"the name of the header {header.name!r} has a character that HAProxy's samples cannot contain"
            )
    texts = [Text(value=path.value, regex=path.kind == "regex") for path in _paths(match)]
    texts += [*(header.text for header in match.headers), *(query.text for query in match.query)]
    for text in texts:
        if text.regex:
            _translated(text.value)
        if not is_writable(text.value):
            raise _fault(f"the text {text.value!r} has a control character")
    names = (*match.methods, *(parameter.name for parameter in match.query))
    if not is_writable(*names):
        raise _fault(f"a name in {names!r} has a control character")


def variables(matches: Iterator[Match]) -> Mapping[str, str]:
    """Return the variable of each header in conditions, by the header's name."""
    names = sorted({_field(header.name) for match in matches for header in match.headers})
    return {name: f"txn.header{number}" for number, name in enumerate(names)}


def collect(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the rules that join the values of each header into its variable."""
    for name, variable in headers.items():
        count = f"req.fhdr_cnt({name})"
        yield f"http-request return status 400 if {{ {count} gt {MOST_VALUES} }}"
        yield f"http-request set-var({variable}) req.fhdr({name},1) if {{ {count} gt 0 }}"
        for number in range(2, MOST_VALUES + 1):
            text = word(f"%[var({variable})],%[req.fhdr({name},{number})]")
            yield f"http-request set-var-fmt({variable}) {text} if {{ {count} ge {number} }}"


def acls(name: str, match: Match, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the ACLs of a route as pairs of a name and a condition; the request must meet each name.

    Pairs with the same name are alternatives. `headers` has the variables of headers (`variables`).
    """
    for number, path in enumerate(_paths(match)):
        if condition := _path(path):
            yield f"{name}:path{number}", condition
    for start in range(0, len(match.methods), _METHODS_OF_A_LINE):
        some = match.methods[start : start + _METHODS_OF_A_LINE]
        yield f"{name}:method", f"method -- {' '.join(map(word, some))}"
    for number, header in enumerate(match.headers):
        yield f"{name}:header{number}", _header(header, headers)
    for number, query in enumerate(match.query):
        yield f"{name}:query{number}", _query(query)


def _paths(match: Match) -> tuple[Path, ...]:
    return tuple(filter(None, (match.path, *match.other_paths)))


def _field(name: str) -> str:
    return "host" if name == _AUTHORITY else name


def _path(path: Path) -> str:
    if path.kind == "exact":
        return _equal("path", path.value)
    if path.kind == "regex":
        return _fits("path", path.value)
    prefix = path.value.rstrip("/")
    return f"path,concat(/) -m beg -- {word(f'{prefix}/')}" if prefix else ""


def _header(header: Header, headers: Mapping[str, str]) -> str:
    sample = f"var({headers[_field(header.name)]})"
    return _fits(sample, header.text.value) if header.text.regex else _equal(sample, header.text.value)


def _query(query: Query) -> str:
    value = query.text.value
    pattern = _translated(value) if query.text.regex else re.escape(value)
    return f"query -m reg -- {word(first_parameter(query.name, pattern))}"


def _equal(sample: str, value: str) -> str:
    return f"{sample} -m str -- {word(value)}" if value else f"{sample} -m len 0"


def _fits(sample: str, pattern: str) -> str:
    return f"{sample} -m reg -- {word(whole(_translated(pattern)))}"


def _translated(pattern: str) -> str:
    translation = translated(pattern)
    if translation is None:
        raise _fault(
            f"the regular expression {pattern!r} has a different meaning in HAProxy", OmissionReason.REGULAR_EXPRESSION
        )
    return translation


def _fault(text: str, reason: OmissionReason = OmissionReason.MATCH) -> NotExpressible:
    return NotExpressible("match", reason, f"{text}; the route is left out")
