"""The start of a proxy whose DNS server does not answer for the name of the user's OpenTelemetry collector."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc
from tests.netns.namespaces import Namespace

from headgate.envoy.bootstrap import bootstrap
from headgate.envoy.collector_export import with_collector
from headgate.option import HostPort
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.proxies.envoy_flags import EnvoyFlags

DEADLINE_S = 60
SILENT = "192.0.2.53"
"""The address of a DNS server that receives queries and does not answer."""
START = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


class ControlPlane(grpc.GenericRpcHandler):
    """An xDS server without an answer. `requested` is set when a proxy requests resources; its stream begins earlier."""

    def __init__(self) -> None:
        self.requested = threading.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        is_stream = handler_call_details.method.endswith("/DeltaAggregatedResources")
        return grpc.stream_stream_rpc_method_handler(self._receive) if is_stream else None

    def _receive(self, requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        for _request in requests:
            self.requested.set()
        yield from ()


def test_a_proxy_requests_its_configuration_while_the_name_of_the_collector_is_not_resolved(tmp_path: Path) -> None:
    control_plane, server = ControlPlane(), grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((control_plane,))
    server.add_insecure_port(f"unix:{tmp_path}/xds.sock")
    server.start()
    content = bootstrap(
        node_id="sidecar/shop/web", admin_socket=str(tmp_path / "admin.sock"), xds_socket=str(tmp_path / "xds.sock")
    )
    (tmp_path / "bootstrap.json").write_bytes(with_collector(content, HostPort(host="collector.example", port=4317)))
    (tmp_path / "resolv.conf").write_text(f"nameserver {SILENT}\n")
    with closing(Namespace()) as namespace:
        namespace.ip(f"address add {SILENT}/32 dev lo")
        with namespace.entered():
            queries = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        envoy = [find_envoy(os.environ), "-c", tmp_path / "bootstrap.json", *EnvoyFlags().arguments()]
        command = namespace.command("unshare", "--mount", "sh", "-c", START, tmp_path / "resolv.conf", *envoy)
        with queries, (tmp_path / "envoy.log").open("wb") as log:
            queries.bind((SILENT, 53))
            queries.settimeout(DEADLINE_S)
            with subprocess.Popen(command, stdout=log, stderr=log) as process:
                try:
                    assert b"collector" in queries.recv(512)
                    assert control_plane.requested.wait(DEADLINE_S)
                finally:
                    process.terminate()
    server.stop(grace=None).wait()
