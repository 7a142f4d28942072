"""What a client can send an application in a proxy's name: all such headers, by raw sockets, at every listener of Envoy."""

import asyncio
import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.authority import WEB, account
from tests.envoy.forged_headers import (
    FORGED,
    FORGERIES,
    OF_PROXIES,
    OWN,
    SPELLINGS,
    assert_words_of_the_client,
    forged,
)
from tests.envoy.gateway_ports import certificate, gateway_port, routed
from tests.envoy.inbound_rig import InboundRig
from tests.envoy.outbound_rig import OutboundRig, RedirectedRig, redirection_skip_reason
from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.golden.cases import CASES, compiled
from tests.wire import DEADLINE_S, Address

from headgate.cli.compile import GATEWAY, Stage, documents
from headgate.envoy import names
from headgate.envoy.view import sidecar
from headgate.model.routing import Protocol
from headgate.model.sanitizing import CERTIFICATE, RESERVED, RESERVED_AT_EDGE, RESERVED_OF_ENVOY

CLIENT = account("client")
REQUEST = "".join(
    f"{line}\r\n"
    for line in (
        "GET / HTTP/1.1",
        "host: web.example",
        *(f"{name}: {FORGED}" for name in (*FORGERIES, *OWN, *OF_PROXIES)),
        *(f"{name}: {FORGED}" for name in SPELLINGS if "client" not in name and "_" in name),
        "",
    )
)


def test_a_gateway_sends_an_application_only_its_own_statements(rig: EnvoyRig) -> None:
    plain, secure = rig.free(), rig.free()
    port = gateway_port(secure, ("*", routed(rig, "one")), tls=(("*", certificate("a")),))
    rig.apply(gateways=(gateway_port(plain, ("*", routed(rig, "one"))), port))
    for address, tls, scheme in ((plain, False, "http"), (secure, True, "https")):
        rig.ask_when_listening(address=address, tls="web.example" if tls else "")
        rig.take_requests("one")
        send(rig, address, tls=any_certificate() if tls else None)
        got = rig.last_headers("one")
        assert forged(got) == {*OWN, "x-forwarded-for"}
        assert got["x-forwarded-proto"] == scheme
        assert got["x-forwarded-for"].split(",")[:-1] == [FORGED]
        assert not {name for name in got if name.startswith("x-envoy")}


def test_the_listener_of_a_service_passes_no_reserved_header_on(rig: EnvoyRig) -> None:
    rig.apply(rig.route("one"))
    rig.ask_when_listening()
    rig.take_requests("one")
    send(rig, rig.address)
    assert_words_of_the_client(rig.last_headers("one"))


@pytest.fixture(scope="module")
def outbound() -> Iterator[OutboundRig]:
    with OutboundRig() as rig:
        yield rig


def test_a_sidecars_http_proxy_passes_no_reserved_header_on(outbound: OutboundRig) -> None:
    server = outbound.server("blue")
    outbound.push(outbound.mesh({"web": [server.endpoint()]}))
    outbound.wait_until_listening()
    send(outbound, outbound.address, host="web.default:80")
    assert_words_of_the_client(headers_of(server.plaintext))


def test_a_tunnel_to_an_http_port_passes_no_reserved_header_on(outbound: OutboundRig) -> None:
    server = outbound.server("green")
    outbound.push(outbound.mesh({"web": [server.endpoint()]}))
    outbound.wait_until_listening()
    assert b"200 OK" in outbound.tunnel("web", REQUEST.encode())
    assert_words_of_the_client(headers_of(server.plaintext))


def test_a_tunnel_to_a_tcp_port_is_the_clients_own_connection_to_the_server(outbound: OutboundRig) -> None:
    """No proxy reads what is inside; the sidecar of the server does."""
    server = outbound.server("blue")
    outbound.push(outbound.mesh({"web": [server.endpoint()]}, protocol=Protocol.TCP))
    outbound.wait_until_listening()
    assert b"200 OK" in outbound.tunnel("web", REQUEST.encode())
    assert server.plaintext == REQUEST.encode()


@pytest.mark.skipif(bool(redirection_skip_reason()), reason=redirection_skip_reason() or "redirects")
def test_a_transparent_sidecar_passes_no_reserved_header_on() -> None:
    with RedirectedRig() as redirected:
        server = redirected.server("blue")
        redirected.push(redirected.mesh({"web": [server.endpoint()]}, addresses={"web": "10.98.0.1"}))
        redirected.exchange(Address("10.98.0.1", 80), REQUEST.encode())
        assert_words_of_the_client(headers_of(server.plaintext))


@pytest.mark.parametrize("identity", [None, CLIENT])
def test_the_sidecar_of_a_server_states_only_the_verified_identity(identity: str | None) -> None:
    with InboundRig() as inbound:
        port = inbound.port(inbound.echo("app").port)
        inbound.serve(port)
        inbound.wait_for(port)
        tls = inbound.client_tls(identity) if identity else None
        send(inbound, Address(ADDRESS, port.port), tls=tls, name=f"{port.port}.http.default.svc.cluster.local")
        got = dict(inbound.last_headers("app"))
        stated = got.pop(CERTIFICATE, "")
        assert re.fullmatch(f"By={WEB};Hash=[0-9a-f]{{64}};URI={identity}" if identity else "", stated)
        assert_words_of_the_client(got)


def test_every_connection_manager_of_every_golden_case_removes_reserved_headers_first() -> None:
    """Also those of probes, of `headgate try`, of transparent sidecars and of listeners that get no connections."""
    managers = list(connection_managers())
    assert {name for name, _ in managers} >= {names.PROBES, names.TRY, names.INBOUND, names.PROXY, names.SHARED_CHAIN}
    for name, manager in managers:
        (rule,) = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"]
        regex = rule["remove_on_match"]["key_matcher"]["safe_regex"]["regex"]
        edge = manager.get("use_remote_address") is True
        # the client of `headgate try` names the address that it calls in a header of headgate's own
        allowed = {RESERVED_AT_EDGE} if edge else {RESERVED, RESERVED_OF_ENVOY} if name == names.TRY else {RESERVED}
        assert regex.removeprefix("^") in allowed, name


def connection_managers() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the connection managers of all proxies, with the names of their listeners or chains."""
    for case in CASES:
        result = compiled(case)
        for node in (GATEWAY, *map(sidecar, result.mesh.workloads)):
            for document in documents(result, Stage.XDS, node):
                yield from ((document["name"], manager) for manager in managers_in(document))


def managers_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the connection managers in a resource."""
    if isinstance(value, Mapping):
        if str(value.get("@type", "")).endswith(".HttpConnectionManager"):
            yield value
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for inner in value:
        yield from managers_in(inner)


def send(
    rig: EnvoyRig, address: Address, *, host: str = "web.example", tls: ssl.SSLContext | None = None, name: str = "a"
) -> None:
    """Send REQUEST over a new connection, and wait for the answer."""

    async def once() -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            server_name = name if tls else None
            reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname=server_name)
            writer.write(REQUEST.replace("web.example", host).encode())
            try:
                return await reader.readuntil(b"\r\n\r\n")
            finally:
                writer.close()

    assert b" 200 OK" in rig.network.run(once())


def any_certificate() -> ssl.SSLContext:
    """Return a client's TLS context that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def headers_of(request: bytes) -> dict[str, str]:
    """Return the headers of a request as a server received it."""
    lines = request.decode().partition("\r\n\r\n")[0].split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
