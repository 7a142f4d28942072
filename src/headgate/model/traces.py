"""Traces: which proxies begin them, in whose name they send spans, and the trace of a request (docs/tasks/traces.md)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import structs

from headgate.model.requests import Request
from headgate.resources.meta import Value

ALL_REQUESTS = 10_000
"""The sampling share of all requests. A share is in ten-thousandths, Envoy's finest unit for traces."""


class TraceSource(Value, frozen=True, kw_only=True):
    """The name in which a proxy sends spans, and the share of traces that it begins for requests without a trace."""

    service: str
    sampling: int


class Tracing(Value, frozen=True, kw_only=True):
    """The collector of spans, `HOST:PORT`, and the sampling share of proxies without one of their own."""

    collector: str
    sampling: int


_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]([0-9a-f])", re.ASCII)
_B3 = re.compile(r"(?!0+-)([0-9a-f]{32}|[0-9a-f]{16})-(?!0{16})[0-9a-f]{16}(?:-(.*))?", re.ASCII)
_ID_DIGITS = 32
REQUEST_ID = "x-request-id"
CHOSEN_ID = "00000000-0000-4000-8000-000000000000"
"""Stands for the random UUID that a proxy chooses for each request while traces are on."""


def with_chosen_id(request: Request) -> Request:
    """Return a request as routes see it while traces are on: with an ID that the proxy has chosen, not the client's."""
    kept = tuple(header for header in request.headers if header[0].lower() != REQUEST_ID)
    return structs.replace(request, headers=(*kept, (REQUEST_ID, CHOSEN_ID)))


class TraceContext(NamedTuple):
    """The trace of a request, in hexadecimal digits, and whether its client has sampled it."""

    trace: str
    is_sampled: bool


def trace_context(headers: Iterable[tuple[str, str]]) -> TraceContext | None:
    """Return the trace that proxies continue for a request with these headers; None if they begin one.

    It follows the rules of docs/tasks/traces.md, and shares no code with the configuration of proxies.
    """
    values: dict[str, str] = {}
    for name, value in headers:
        earlier = values.get(name.lower())
        values[name.lower()] = value if earlier is None else f"{earlier},{value}"
    if match := _PARENT.fullmatch(values.get("traceparent", "")):
        return TraceContext(match[1], bool(int(match[2], 16) & 1))
    parts = [values.get(f"x-b3-{part}", "") for part in ("traceid", "spanid", "sampled")]
    single = values.get("b3", "-".join(parts) + values.get("x-b3-flags", ""))
    if match := _B3.fullmatch(single):
        return TraceContext(match[1].zfill(_ID_DIGITS), (match[2] or "").startswith(("1", "d")))
    return None
