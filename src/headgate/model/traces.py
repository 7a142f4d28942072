"""Traces: which proxies begin them, and in whose name they send spans (docs/traces.md)."""

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
