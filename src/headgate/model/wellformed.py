"""Find malformed requests, which a proxy refuses before sanitizing and routing (Envoy 1.40, HTTP/1 and HTTP/2)."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from msgspec import structs

from headgate.model.requests import Request
from headgate.resources.grammars import HEADER_CHARACTER

CONNECT = "CONNECT"
BAD_REQUEST = 400
TOO_LARGE = 431
NOT_IMPLEMENTED = 501
MAX_HEAD_BYTES = 1024 * 1024
MAX_HEADERS = 1000
DEFAULT_HOST = "localhost"
"""The host of an HTTP/1.0 request without one (RFC 9112, 3.2 requires it for HTTP/1.1 only)."""
_SPACE = " \t"
_TOKEN = re.compile(f"{HEADER_CHARACTER}+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")
_TARGET = re.compile(r"[!-~]+")
_TARGET_OF_HTTP2 = re.compile(r"[!-~\x80-\U0010ffff]+")
_AUTHORITY = re.compile(r"[!$-.0-;=@A-Z\[\]_a-z~]*")
_HOST = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+(?:%[\w.~-]+)?\])"
_URL = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^@/?#]*@)?(?P<host>{_HOST}(?::(?P<port>[0-9]+))?)"
    rf"(?P<path>[/?][!-\"$-~]*)?(?P<fragment>#[!-~]*)?"
)
_TUNNEL = re.compile(rf"{_HOST}:[0-9]+")
_LAST_PORT = 65_535
_RELATIVE = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=:@/?-]*")
_OF_CONNECTIONS = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")


class ProxyRefusal(NamedTuple):
    """The status of the proxy's response, and the reason. Over HTTP/2, Envoy may reset the stream instead."""

    status: int
    reason: str


def refusal(request: Request) -> ProxyRefusal | None:
    """Return the first reason why a proxy refuses a malformed request; None for a well-formed one."""
    faults = _faults_of_http2(request) if request.version == "2" else _faults_of_http1(request)
    fragment = [_bad("the path has a fragment (#)")] if "#" in request.target else []
    return next(chain(_faults_of_headers(request), faults, fragment), None)


def _bad(reason: str) -> ProxyRefusal:
    return ProxyRefusal(BAD_REQUEST, reason)


def _faults_of_headers(request: Request) -> Iterator[ProxyRefusal]:
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name):
            yield _bad(f"{name!r} is not a header name")
        if not _VALUE.fullmatch(value):
            yield _bad(f"the value of {name} has a control character")
    lengths = _values(request, "content-length")
    if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]+", value) for value in lengths):
        yield _bad("content-length must be one number")
    if request.method == "QUERY" and not any(_values(request, "content-type")):
        yield _bad("a QUERY request must have a content-type (RFC 10008, 2)")


def _faults_of_http1(request: Request) -> Iterator[ProxyRefusal]:
    if not _TOKEN.fullmatch(request.method):
        yield _bad(f"{request.method!r} is not a method")
    if not _TARGET.fullmatch(request.target):
        yield _bad("the target is empty, or has a space or a character that is not ASCII")
    if request.method != CONNECT and not _is_target(request):
        yield _bad("the target is neither a path nor an http or https URL")
    codings = [value.lower() for value in _values(request, "transfer-encoding")]
    if codings and any(request.method != CONNECT or value != "0" for value in _values(request, "content-length")):
        yield _bad("transfer-encoding and content-length must not be used together")
    if codings and (codings != ["chunked"] or request.method == CONNECT):
        yield ProxyRefusal(NOT_IMPLEMENTED, "proxies support only the transfer-encoding chunked")
    lines = [f"{request.method} {request.target} HTTP/{request.version}", f"host: {request.authority}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    if sum(_bytes(line) + len("\r\n") for line in (*lines, "")) > MAX_HEAD_BYTES:
        yield ProxyRefusal(TOO_LARGE, f"the request's head is larger than {MAX_HEAD_BYTES} bytes")
    if len({name.lower() for name, _ in request.headers}) + 1 > MAX_HEADERS:
        yield ProxyRefusal(TOO_LARGE, f"the request has more than {MAX_HEADERS} headers")
    if request.method == CONNECT and not _TUNNEL.fullmatch(request.target):
        yield _bad("the target of CONNECT must be a host with a port")
    if not _AUTHORITY.fullmatch(request.authority.strip(_SPACE)):
        yield _bad(f"{request.authority!r} is not a host")


def _values(request: Request, header: str) -> list[str]:
    return [value.strip(_SPACE) for name, value in request.headers if name.lower() == header]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _is_target(request: Request) -> bool:
    if request.target.startswith("/"):
        return True
    if request.method == "OPTIONS" and request.target.startswith("*"):
        return True
    url = _url(request.target)
    return url is not None and url["scheme"].lower() in {"http", "https"}


def _faults_of_http2(request: Request) -> Iterator[ProxyRefusal]:
    for name, value in request.headers:
        if name.lower() in _OF_CONNECTIONS:
            yield _bad(f"{name} does not exist in HTTP/2")
        if name.lower() == "te" and value != "trailers":
            yield _bad("te may only be `trailers` in HTTP/2")
    if not _TOKEN.fullmatch(request.method):
        yield _bad(f"{request.method!r} is not a method")
    if not _TARGET_OF_HTTP2.fullmatch(request.target) or not _is_path(request):
        yield _bad("the path must begin with a slash and have no space")
    if not _AUTHORITY.fullmatch(request.authority) or not request.authority or "@" in request.authority:
        yield _bad(f"{request.authority!r} is not a host")
    pseudo = ((":method", request.method), (":scheme", "http"), (":path", request.target))
    fields = (*pseudo, (":authority", request.authority), *request.headers)
    if sum(_bytes(name) + _bytes(value) for name, value in fields) > MAX_HEAD_BYTES:
        yield ProxyRefusal(TOO_LARGE, f"the request's headers are larger than {MAX_HEAD_BYTES} bytes")
    if len(fields) > MAX_HEADERS:
        yield ProxyRefusal(TOO_LARGE, f"the request has more than {MAX_HEADERS} headers")


def _is_path(request: Request) -> bool:
    if request.method == CONNECT:
        return False  # CONNECT has no path in HTTP/2 (RFC 9113, 8.5)
    return request.target.startswith("/") or (request.method, request.target) == ("OPTIONS", "*")


def in_origin_form(request: Request) -> Request:
    """Return a request with a path as its target; an absolute URL's host replaces the Host header (RFC 9112, 3.2.2).

    An HTTP/1.0 request without a host gets `DEFAULT_HOST`.
    """
    if request.version == "2" or request.method == CONNECT or request.target[:1] in {"/", "*"}:
        default = DEFAULT_HOST if request.version == "1.0" else ""
        return structs.replace(request, authority=request.authority.strip(_SPACE) or default)
    url = _url(request.target)
    if url is None:  # unreachable: `refusal` rejects such a target
        return request
    return structs.replace(request, authority=url["host"], target=url["path"] or "/")


def _url(text: str) -> re.Match[str] | None:
    url = _URL.fullmatch(text)
    return url if url and int(url["port"] or 0) <= _LAST_PORT else None


def is_referer(text: str) -> bool:
    """Return whether a Referer is valid: a URL or relative reference without fragment and user."""
    if url := _url(text):
        return not url["user"] and not url["fragment"]
    return bool(_RELATIVE.fullmatch(text)) and ":" not in text.partition("/")[0]
