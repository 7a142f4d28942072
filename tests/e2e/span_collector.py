"""An OpenTelemetry collector on loopback that keeps the spans of proxies, and checks that each keeps the protocol."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from headgate.envoy import pb

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SERVER, CLIENT = 2, 3


class ReceivedSpan(NamedTuple):
    """A span, with the attributes of its resource. IDs are in hexadecimal digits; `parent` may be empty.

    `start` is in nanoseconds since the epoch.
    """

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start: int
    state: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]

    @property
    def service(self) -> str:
        """Return the `service.name` of the proxy."""
        return str(self.resource["service.name"])


class SpanCollector(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """An OTLP receiver of spans; `mistakes` are violations of the protocol. While `held`, it answers no message."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.mistakes: list[str] = []
        self.messages = 0
        self.released = threading.Event()
        self.released.set()
        self._lock = threading.Lock()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.unary_unary_rpc_method_handler(self._receive) if handler_call_details.method == METHOD else None

    def _receive(self, data: bytes, _: grpc.ServicerContext) -> bytes:
        self.messages += 1
        self.released.wait()
        message = pb.ExportTraceServiceRequest.FromString(data)
        with self._lock:
            for resource in message.resource_spans:
                about = _values(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self.spans += [self._read(span, about) for span in scope.spans]
        return b""

    def _read(self, span: pb.Span, resource: Mapping[str, Any]) -> ReceivedSpan:
        keys = [item.key for item in span.attributes]
        rules = {
            "the trace ID has 16 bytes that are not all 0": len(span.trace_id) == 16 and any(span.trace_id),
            "the span ID has 8 bytes that are not all 0": len(span.span_id) == 8 and any(span.span_id),
            "the parent's ID has 8 bytes": len(span.parent_span_id) in {0, 8},
            "the span ends after its start": 0 < span.start_time_unix_nano <= span.end_time_unix_nano,
            "the span has a name": bool(span.name.strip()),
            "no two attributes have one key": len(set(keys)) == len(keys),
            "the resource has a service.name": bool(resource.get("service.name")),
        }
        self.mistakes += [f"{rule}: {span}" for rule, kept in rules.items() if not kept]
        ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
        return ReceivedSpan(
            *ids, span.name, span.kind, span.start_time_unix_nano, span.trace_state, _values(span.attributes), resource
        )

    def of_trace(self, trace: str) -> Sequence[ReceivedSpan]:
        """Return the spans of a trace, each after its parent; raises AssertionError if they are not one tree."""
        with self._lock:
            left = {span.id: span for span in self.spans if span.trace == trace}
        roots = [span for span in left.values() if span.parent not in left]
        assert len(roots) <= 1, f"{len(roots)} spans have a parent that did not arrive: {roots}"
        ordered = roots[:]
        for span in ordered:
            ordered += [child for child in left.values() if child.parent == span.id]
        return ordered


def _values(pairs: Sequence[pb.KeyValue]) -> Mapping[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in pairs}


@contextlib.contextmanager
def span_collector(port: int = 0) -> Iterator[tuple[str, SpanCollector]]:
    """Run a collector on loopback; yield its address and the collector."""
    server, found = grpc.server(ThreadPoolExecutor(4)), SpanCollector()
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    with _serving(server, found):
        yield f"127.0.0.1:{port}", found


@contextlib.contextmanager
def span_collector_at(path: Path) -> Iterator[SpanCollector]:
    """Run a collector on a unix socket; yield the collector."""
    server, collector = grpc.server(ThreadPoolExecutor(4)), SpanCollector()
    server.add_insecure_port(f"unix:{path}")
    with _serving(server, collector):
        yield collector


@contextlib.contextmanager
def _serving(server: grpc.Server, found: SpanCollector) -> Iterator[None]:
    server.add_generic_rpc_handlers((found,))
    server.start()
    try:
        yield
    finally:
        found.released.set()
        server.stop(grace=None).wait()
