"""XBackends as backends of routes, compiled from objects and pushed to a real Envoy (GEP-4488).

The tests replace the external names by `localhost` after compilation: the compiler rejects that name.
"""

from contextlib import closing
from typing import Any

import grpc
import pytest
from tests.e2e.gateway_api.tls_backends import HOST, TRUSTED, HttpsServer, SecureGrpcServer
from tests.envoy.rig import EnvoyRig
from tests.make.objects import (
    Object,
    external_backend,
    external_ref,
    gateway,
    listener,
    obj,
    path_match,
    route,
    service,
    service_parent,
)
from tests.make.server_certificates import PAIRS
from tests.make.server_certificates import secret as server_secret
from tests.make.values import compiled, with_local_names
from tests.waiting import until
from tests.wire import DEADLINE_S, Address

from headgate.model.routing import Mesh

ROOT, EDGE = "127.0.0.9", "127.0.0.10"
CA = obj("ConfigMap", "ca", data={"ca.crt": TRUSTED.pem})


def server_only(hostname: str = HOST, ca: str = "ca") -> Object:
    """Return the TLS of an XBackend whose server has a certificate for a name by the CA in a ConfigMap."""
    validation = {"hostname": hostname, "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": ca}]}
    return {"mode": "ServerOnly", "validation": validation}


def local(*objects: Object) -> Mesh:
    """Return the mesh of some objects, in which `localhost` replaces external names."""
    return with_local_names(compiled(*objects).mesh)


def rule_for(name: str, **more: Any) -> Object:
    """Return a rule for the path `/NAME`, which leads to the XBackend `name`."""
    return {"matches": [path_match(f"/{name}")], "backendRefs": [external_ref(name)], **more}


@pytest.fixture
def https(envoy: EnvoyRig) -> HttpsServer:
    return HttpsServer(envoy.network)


def test_a_gateway_and_clients_in_the_mesh_call_a_server_outside_over_verified_tls(
    envoy: EnvoyRig, https: HttpsServer
) -> None:
    entrance, plain, number = envoy.free(), envoy.echo("outside"), https.address.port
    wrong = server_only("other.example.com")
    rules = [rule_for(name) for name in ("secured", "wrong", "system", "plain")]
    envoy.push(
        local(
            CA,
            gateway("edge", listener(entrance.port), status={"addresses": [{"value": EDGE}]}),
            service("web", number, clusterIP=ROOT),
            external_backend("secured", "api.example.com", number, tls=server_only()),
            external_backend("wrong", "api.example.com", number, tls=wrong),
            external_backend("system", HOST, number, tls={"mode": "ServerOnly"}),
            external_backend("plain", "api.example.com", plain.port, protocol="HTTP11"),
            route("edge", *rules, parents=[{"name": "edge"}, service_parent("web")]),
        )
    )
    for address in (Address(EDGE, entrance.port), Address(ROOT, number)):
        # the server answers with the server name of the connection, and with the name in the client's certificate
        until(lambda at=address: envoy.ask("/secured", address=at).answered_by == f"{HOST} none")
        answered = https.answered
        assert envoy.ask("/wrong", address=address).status == 503
        assert envoy.ask("/system", address=address).status == 503
        assert https.answered == answered
        until(lambda at=address: envoy.ask("/plain", address=at).answered_by == "outside")
        assert {seen.headers["host"] for seen in plain.take_requests()} == {f"api.example.com:{plain.port}"}


def test_a_grpc_route_calls_a_server_outside_over_tls_and_http2(envoy: EnvoyRig) -> None:
    entrance = envoy.free()
    with closing(SecureGrpcServer()) as calls:
        envoy.push(
            local(
                CA,
                gateway("edge", listener(entrance.port), status={"addresses": [{"value": EDGE}]}),
                external_backend("calls", "api.example.com", calls.address.port, tls=server_only()),
                route("calls", {"backendRefs": [external_ref("calls")]}, parents=[{"name": "edge"}], kind="GRPCRoute"),
            )
        )
        with grpc.insecure_channel(f"{EDGE}:{entrance.port}") as channel:
            call = channel.unary_unary("/Echo/One")
            assert call(b"", timeout=DEADLINE_S, wait_for_ready=True) == b"secured"


def test_a_route_of_connections_adds_tls_and_a_passed_on_connection_keeps_the_tls_of_the_client(
    envoy: EnvoyRig, https: HttpsServer
) -> None:
    passing, forwarding = envoy.free(), envoy.free()
    modes = [
        listener(passing.port, "tls", protocol="TLS", hostname=HOST, tls={"mode": "Passthrough"}),
        listener(forwarding.port, "tcp", protocol="TCP"),
    ]
    backend = {"backendRefs": [external_ref("hosted")]}
    envoy.push(
        local(
            CA,
            gateway("edge", *modes, status={"addresses": [{"value": EDGE}]}),
            external_backend("hosted", "api.example.com", https.address.port, tls=server_only()),
            route("sni", backend, parents=[{"name": "edge"}], kind="TLSRoute", hostnames=[HOST]),
            route("bytes", backend, parents=[{"name": "edge", "sectionName": "tcp"}], kind="TCPRoute"),
        )
    )
    until(lambda: envoy.ask(address=Address(EDGE, forwarding.port)).answered_by == f"{HOST} none")
    until(lambda: envoy.ask(address=Address(EDGE, passing.port), tls=HOST).answered_by == f"{HOST} none")


@pytest.mark.parametrize("passing", ["a.example", "z.example"])
def test_a_tls_route_of_listeners_that_end_tls_or_pass_it_on_at_one_port(
    envoy: EnvoyRig, https: HttpsServer, passing: str
) -> None:
    """One route attaches to both; the proxy adds TLS to connections of the one listener only, whichever name is first."""
    ending = "m.example"
    address = Address(EDGE, envoy.free().port)
    certificate = {"certificateRefs": [{"name": "ended"}]}
    envoy.push(
        local(
            CA,
            server_secret("ended", PAIRS["P-256"]),
            gateway(
                "edge",
                listener(address.port, "passed", protocol="TLS", hostname=passing, tls={"mode": "Passthrough"}),
                listener(address.port, "ended", protocol="TLS", hostname=ending, tls=certificate),
                status={"addresses": [{"value": EDGE}]},
            ),
            external_backend("hosted", "api.example.com", https.address.port, tls=server_only()),
            route(
                "both",
                {"backendRefs": [external_ref("hosted")]},
                parents=[{"name": "edge"}],
                kind="TLSRoute",
                hostnames=[passing, ending],
            ),
        )
    )
    until(lambda: envoy.ask(address=address, tls=ending).answered_by == f"{HOST} none")
    until(lambda: envoy.ask(address=address, tls=passing).answered_by == f"{passing} none")
