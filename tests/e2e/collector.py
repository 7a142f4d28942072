"""An OpenTelemetry collector on loopback that counts the requests in the reports of proxies."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import grpc
from tests.envoy.counting import counts_requests

from headgate.envoy import pb
from headgate.telemetry.reports.otlp import METHOD, ProxyReport, Series, read_report


class Collector(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """An OTLP receiver; `values` holds the last values of each proxy."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Series, int]] = {}
        self.services: set[str] = set()
        self._lock = threading.Lock()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.unary_unary_rpc_method_handler(self._receive) if handler_call_details.method == METHOD else None

    def _receive(self, data: bytes, _: grpc.ServicerContext) -> bytes:
        report: ProxyReport = read_report(data)
        with self._lock:
            for part in pb.ExportMetricsServiceRequest.FromString(data).resource_metrics:
                self.services |= {
                    item.value.string_value for item in part.resource.attributes if item.key == "service.name"
                }
            known = self.values.setdefault(report.node, {})
            known.update({sample.series: sample.value for sample in report.samples})
        return b""

    def requests(self) -> Mapping[str, int]:
        """Return the number of requests that each proxy has reported."""
        with self._lock:
            return {
                node: sum(value for series, value in found.items() if counts_requests(series.name, series.pairs()))
                for node, found in self.values.items()
            }


@contextlib.contextmanager
def collector(port: int = 0) -> Iterator[tuple[str, Collector]]:
    """Run a collector, by default on a free port; yield its address and the collector."""
    server, found = grpc.server(ThreadPoolExecutor(4)), Collector()
    server.add_generic_rpc_handlers((found,))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}", found
    finally:
        server.stop(grace=None).wait()
