"""Headers of requests and responses as directives of nginx."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from headgate.model.requests import Filters
from headgate.model.sanitizing import CERTIFICATE, HOP_BY_HOP, RESERVED_NAMES
from headgate.render.edits import combined, host_of
from headgate.render.nginx.conditions import AUTHORITY, SCHEME, TE, UPGRADE
from headgate.render.nginx.syntax import Variables, escaped, literal, template
from headgate.render.omissions import Collector, OmissionReason, Place

CONNECTION = "$headgate_connection"
_WRITTEN_BY_NGINX = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})
_OF_BODIES = frozenset({"content-length", "transfer-encoding"})
_NAME = re.compile(r"[A-Za-z0-9_-]+")
IGNORED = "Cache-Control Expires Set-Cookie Vary X-Accel-Buffering X-Accel-Charset X-Accel-Expires X-Accel-Limit-Rate X-Accel-Redirect"
"""Headers of responses that change what nginx does; backends of a mesh do not control their clients' proxies."""
PASSED = (
    "Date",
    "Server",
    "X-Pad",
    "X-Accel-Buffering",
    "X-Accel-Charset",
    "X-Accel-Expires",
    "X-Accel-Limit-Rate",
    "X-Accel-Redirect",
)

_BASE: Mapping[str, str] = MappingProxyType(
    {
        "host": AUTHORITY,
        "connection": CONNECTION,
        "upgrade": UPGRADE,
        "te": TE,
        "expect": "$headgate_expect",
        **dict.fromkeys((name for name in HOP_BY_HOP if name != "transfer-encoding"), ""),
        **dict.fromkeys((*RESERVED_NAMES, CERTIFICATE.replace("-", "_")), ""),
        "x-forwarded-proto": SCHEME,
    }
)
_EDGE: Mapping[str, str] = MappingProxyType(
    {
        **_BASE,
        **dict.fromkeys(("x_forwarded_for", "x_forwarded_proto"), ""),
        "x-forwarded-proto": "$scheme",
        "x-forwarded-for": "$proxy_add_x_forwarded_for",
    }
)
_ONLY_HTTP1 = frozenset({"connection", "upgrade", "te"})


def base(*, edge: bool) -> Mapping[str, str]:
    """Return the headers by lower-case name that nginx sets in each request to a backend, as templates."""
    return _EDGE if edge else _BASE


def request_directives(module: str, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the directives that set headers of requests; `module` is proxy or grpc."""
    for name, value in headers.items():
        if module == "proxy" or name not in _ONLY_HTTP1:
            yield f"{module}_set_header {name} {template(value)};"


class HeaderFilters:
    """Renders the filters of a route and a share on headers; `place` is for what can't be rendered."""

    def __init__(self, variables: Variables, collector: Collector, place: Place) -> None:
        self._variables = variables
        self._collector = collector
        self._place = place

    def of_requests(self, module: str, filters: Sequence[Filters], *, edge: bool) -> Iterator[str]:
        """Yield the directives for requests; none if the directives of the server apply without a change."""
        edits, host = combined(route_filters.request for route_filters in filters), host_of(filters)
        headers = dict(base(edge=edge))
        if host:
            headers["host"] = escaped(host)
        for name in sorted(edits.dropped):
            if self._is_known(name, _OF_BODIES, "request"):
                headers[name] = ""
        added: dict[str, list[str]] = {}
        for name, value in edits.added:
            if not self._is_known(name, _OF_BODIES, "request"):
                continue
            if value:
                added.setdefault(name.lower(), []).append(escaped(value))
            else:
                message = "nginx sends no empty headers; the request has no such header"
                self._collector.add(self._place, f"request header {name}", OmissionReason.EMPTY_HEADER, message)
        for name, values in added.items():
            present = headers.get(name, f"$http_{name.replace('-', '_')}")
            headers[name] = self._joined(present, ",".join(values))
        if headers != base(edge=edge):
            yield from request_directives(module, headers)

    def _joined(self, present: str, new: str) -> str:
        """Return the template of a header with new values after those that are present."""
        if not present:
            return new
        return self._variables.mapped("added", present, [('""', template(new))], template(f"{present},{new}"))

    def of_responses(self, module: str, filters: Sequence[Filters]) -> Iterator[str]:
        """Yield the directives for responses."""
        edits = combined(route_filters.response for route_filters in filters)
        for name in sorted(edits.dropped):
            if self._is_known(name, _WRITTEN_BY_NGINX, "response"):
                yield f"{module}_hide_header {name};"
        for name, value in edits.added:
            if not self._is_known(name, _WRITTEN_BY_NGINX, "response"):
                continue
            if value:
                yield f"add_header {name} {literal(value)} always;"
            else:
                message = "nginx sends no empty headers; the response has no such header"
                self._collector.add(self._place, f"response header {name}", OmissionReason.EMPTY_HEADER, message)

    def _is_known(self, name: str, own: frozenset[str], what: str) -> bool:
        if name.lower() not in own and _NAME.fullmatch(name):
            return True
        message = "nginx writes this header itself" if name.lower() in own else "nginx has no variable for this name"
        self._collector.add(
            self._place, f"{what} header {name}", OmissionReason.HEADER, f"{message}; it stays unchanged"
        )
        return False
