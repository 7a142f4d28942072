"""The kubelet's probes at the real Envoy of a pod whose ports accept mutual TLS only (R70)."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.authority import WEB
from tests.envoy.inbound_rig import Caller, InboundRig
from tests.envoy.rig import ADDRESS
from tests.ports import free_port
from tests.protocols import Stream, TcpServer
from tests.waiting import until
from tests.wire import Address

from headgate.envoy import probes
from headgate.model.mutual_tls import TlsMode
from headgate.model.probes import HealthCheck, PortCheck
from headgate.model.routing import Workload

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
SOURCE = "127.0.0.6"


class Health:
    """The gRPC health service of an application; `services` has the encoded response for each known service."""

    def __init__(self, port: int = 0) -> None:
        self.services = {b"": SERVING}
        self.callers: set[str] = set()
        self._server = grpc.server(ThreadPoolExecutor(2))
        methods = {"Check": grpc.unary_unary_rpc_method_handler(self.check)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods),))
        self.port = self._server.add_insecure_port(f"{ADDRESS}:{port}")
        self._server.start()

    def check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.callers.add(context.peer().rpartition(":")[0])
        name = request[2:]  # after the tag and the length of the field
        if name not in self.services:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return self.services[name]

    def close(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture(scope="module")
def envoy() -> Iterator[InboundRig]:
    with InboundRig() as sidecar:
        yield sidecar


@pytest.fixture
def inbound(envoy: InboundRig) -> Iterator[InboundRig]:
    envoy.echo("app")
    yield envoy
    envoy.abort()


def kubelet(inbound: InboundRig, found: Sequence[HealthCheck] = (), checks: Sequence[PortCheck] = ()) -> Caller:
    """Serve probes at an address that is unique for this process, as their port is fixed; return a client of it."""
    wildcard = f"127.99.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
    workload = Workload(
        name="default/web-1",
        address=ADDRESS,
        identity=WEB,
        tls_mode=TlsMode.STRICT,
        probes=tuple(found),
        port_checks=tuple(checks),
    )
    inbound.push_parts(*probes.parts(workload, wildcard=wildcard, source=SOURCE))
    caller = Caller(inbound.network, Address(wildcard, 15020))
    inbound.callers.append(caller)
    until(lambda: caller.get("/ready").status == 200, "the listener for probes")
    return caller


def test_http_probes_reach_the_application(inbound):
    """The listener for probes serves only the probes of the pod."""
    application = inbound.echoes["app"].port
    caller = kubelet(
        inbound,
        [
            HealthCheck(name="app/readiness", port=application, path="/healthz?full=1"),
            HealthCheck(name="app/liveness", port=application, path="alive"),
        ],
    )
    assert caller.get("/app/readiness").answered_by == "app"
    assert inbound.last_path("app") == "/healthz?full=1"
    assert caller.get("/app/liveness").status == 200
    assert inbound.last_path("app") == "/alive"
    assert [caller.get(path).status for path in ("/", "/healthz", "/app/readiness/x", "/app/startup")] == [404] * 4
    assert caller.get("/app/readiness", "POST").status == 404
    inbound.echoes["app"].status = "302 Found"
    assert caller.get("/app/readiness").status == 302


def test_a_tcp_probe_fails_while_the_application_does_not_listen(inbound):
    port = free_port()
    caller = kubelet(inbound, checks=[PortCheck(name="db/readiness", port=port, period=1)])
    assert caller.get("/db/readiness").status == 503
    peers, received = set(), []

    async def serve(stream: Stream) -> None:
        reader, writer = stream
        peers.add(writer.get_extra_info("peername")[0])
        received.append(await reader.read())

    server = TcpServer(inbound.network, serve, at=Address(ADDRESS, port))
    until(lambda: caller.get("/db/readiness").status == 200, "the probe succeeds")
    until(lambda: len(received) > 1, "a second connection")
    assert set(received) == {b""}  # the probe sends nothing
    assert peers == {SOURCE}  # the rules of the pod do not redirect these connections to the sidecar
    server.close()
    until(lambda: caller.get("/db/readiness").status == 503, "the probe fails again")


def test_a_request_to_a_tcp_probe_does_not_reach_the_application(inbound):
    """The listener is open to the network, and the port of the application is not."""
    received: list[bytes] = []

    async def serve(stream: Stream) -> None:
        reader, writer = stream
        writer.write(b"secret")
        received.append(await reader.read())

    server = TcpServer(inbound.network, serve)
    caller = kubelet(inbound, checks=[PortCheck(name="db/readiness", port=server.address.port, period=1)])
    until(lambda: caller.get("/db/readiness").status == 200, "the probe succeeds")
    assert caller.get("/db/readiness").body == ""
    assert [caller.get("/db/readiness", method).status for method in ("POST", "PUT")] == [404] * 2
    assert caller.get("/db/readiness?x=1").status == 404
    until(lambda: len(received) > 2, "more connections")
    assert set(received) == {b""}


def test_a_grpc_probe_calls_the_health_service_of_the_application(inbound):
    health = Health()
    checks = [
        PortCheck(name="app/readiness", port=health.port, grpc=True, period=1),
        PortCheck(name="app/liveness", port=health.port, grpc=True, service="live", period=1),
    ]
    caller = kubelet(inbound, checks=checks)
    try:
        until(lambda: caller.get("/app/readiness").status == 200, "the server is SERVING")
        assert caller.get("/app/liveness").status == 503  # unknown service
        health.services[b"live"] = NOT_SERVING
        health.services[b""] = NOT_SERVING
        until(lambda: caller.get("/app/readiness").status == 503, "the server is NOT_SERVING")
        assert caller.get("/app/liveness").status == 503
        health.services[b"live"] = SERVING
        until(lambda: caller.get("/app/liveness").status == 200, "the service is SERVING")
        assert caller.get("/app/readiness").status == 503
        assert health.callers == {f"ipv4:{SOURCE}"}
    finally:
        health.close()


def test_a_grpc_probe_fails_while_the_application_does_not_listen(inbound):
    port = free_port()
    caller = kubelet(inbound, checks=[PortCheck(name="app/readiness", port=port, grpc=True, period=1)])
    assert caller.get("/app/readiness").status == 503
    health = Health(port)
    until(lambda: caller.get("/app/readiness").status == 200, "the probe succeeds")
    health.close()
    until(lambda: caller.get("/app/readiness").status == 503, "the probe fails again")
