"""The method, the URL and the headers of a request, as arguments in the format of curl."""

import re
from collections.abc import Collection, Sequence
from typing import Annotated
from urllib.parse import quote

import typer

from headgate.cli.output import usage_error
from headgate.resources.grammars import HEADER_CHARACTER

_TOKEN = re.compile(f"{HEADER_CHARACTER}+")
_BEFORE_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?[^/?#]*")
_SAFE = "/?%:@!$&'()*+,;=~[]#"
_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
CONNECTION, HOST = "connection", "host"
FIXED = frozenset(("content-length", "transfer-encoding", CONNECTION))

Headers = Annotated[list[str] | None, typer.Option("-H", "--header", metavar="'NAME: VALUE'", help="A header to send.")]


def parse_method(text: str) -> str:
    """Return a method in capital letters. Raises BadParameter for an invalid one."""
    if not _TOKEN.fullmatch(text) or text.upper() == "CONNECT":
        raise usage_error(f"{text!r} is not a supported method; write GET, POST, ...", option="-X")
    return text.upper()


def encoded_url(text: str) -> str:
    """Return a URL in which the path and the query have percent-encoded characters, as browsers send them (RFC 3986, 2.1)."""
    before = _BEFORE_PATH.match(text)
    end = before.end() if before else 0
    return text[:end] + quote(text[end:], safe=_SAFE, errors="surrogateescape")


def parse_headers(texts: Sequence[str], *, fixed: Collection[str] = FIXED) -> tuple[tuple[str, str], ...]:
    """Parse headers in the format of curl. Raises BadParameter, also for a `fixed` header: another argument sets it."""
    headers = []
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not _TOKEN.fullmatch(name.strip()) or not _TEXT.fullmatch(value):
            raise usage_error(f"{text!r} is not a header; write 'name: value'", option="-H")
        if name.strip().lower() in fixed:
            raise usage_error(f"{name.strip()} is computed from the URL and the body; change those", option="-H")
        headers.append((name.strip(), value.strip()))
    return tuple(headers)
