"""A user's OpenTelemetry collector: every proxy reports to the collector and to headgate."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from tests.e2e.counting import counts_requests
from tests.e2e.test_metrics_exact import PLAN, shop_in
from tests.e2e.world import until, world_in_a_new_directory

from headgate.envoy import pb
from headgate.telemetry.reports.otlp import METHOD, Report, Series, read_report


class Collector(grpc.GenericRpcHandler):
    """An OTLP receiver; `values` holds the last values of each proxy."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Series, int]] = {}
        self.services: set[str] = set()
        self._lock = threading.Lock()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.unary_unary_rpc_method_handler(self._receive) if handler_call_details.method == METHOD else None

    def _receive(self, data: bytes, _: grpc.ServicerContext) -> bytes:
        report: Report = read_report(data)
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


@pytest.fixture
def collector() -> Iterator[tuple[str, Collector]]:
    server, found = grpc.server(ThreadPoolExecutor(4)), Collector()
    server.add_generic_rpc_handlers((found,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", found
    server.stop(grace=None).wait()


def test_a_collector_gets_the_same_counts_as_headgate(tmp_path: Path, collector: tuple[str, Collector]) -> None:
    """R97: each proxy reports cumulative values."""
    address, found = collector
    with shop_in(tmp_path, "--otlp-collector", address) as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()
        until(lambda: sum(found.requests().values()) == shop.truth.total(), f"{shop.truth.total()}")
        sent = {node.split("/")[-1].partition("-")[0]: count for node, count in found.requests().items() if count}
        assert sent == {client: sum(paths.values()) for client, paths in PLAN.items()}
        assert found.services == {"headgate-proxy"}


def test_headgate_counts_requests_while_the_collector_is_unreachable(tmp_path: Path) -> None:
    with shop_in(tmp_path, "--otlp-collector", "127.0.0.1:9") as shop:
        shop.send(PLAN)
        shop.wait_for_agreement()


@pytest.mark.parametrize("address", ["x", "http://127.0.0.1:4317", "127.0.0.1:0", ":4317"])
def test_up_rejects_an_invalid_collector_address(address: str) -> None:
    with (
        pytest.raises(AssertionError, match="write HOST:PORT without http://, for example"),
        world_in_a_new_directory("--otlp-collector", address),
    ):
        pass
