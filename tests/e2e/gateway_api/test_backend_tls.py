"""BackendTLSPolicies (GEP-1897): a Gateway calls backends over TLS, with the Gateway's certificate (GEP-3155)."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import grpc
import pytest
from tests.e2e.gateway_api.objects import PORT, edge_gateway, edge_route, path, route_grant, rule_of, web_listener
from tests.e2e.gateway_api.site import Site, conditions
from tests.e2e.gateway_api.tls_backends import (
    HOST,
    OTHER,
    PORT_NAME,
    TRUSTED,
    URI,
    HttpsServer,
    SecureGrpcServer,
    ca_config,
    issued,
    server_context,
    tls_policy,
)
from tests.e2e.manifests import endpoints, protocol_service, service_manifest
from tests.make.objects import external_backend, manifest
from tests.make.server_certificates import PAIRS
from tests.make.server_certificates import secret as server_secret
from tests.protocols import Stream, TcpServer
from tests.waiting import until
from tests.wire import DEADLINE_S, Address

HTTPS, PLAIN_PORT = 443, PORT + 1
FAILED = {"502", "503"}
OK = f"{HOST} none"


def serve(
    site: Site, *names: str, app: str = "HTTPS", more_names: Sequence[str] = (), client_roots: str = ""
) -> HttpsServer:
    """Start an HTTPS server, with several Services; its certificate has `more_names`."""
    server = HttpsServer(site.host.network, *more_names, client_roots=client_roots)
    site.apply(
        ca_config(), *(protocol_service(name, server, app=app, port_name=PORT_NAME, port=HTTPS) for name in names)
    )
    return server


def rule_for(service: str, port: int = HTTPS) -> Mapping[str, Any]:
    """Return a rule for a Service's port; its path is the name of the Service, with a port other than HTTPS."""
    path = service if port == HTTPS else f"{service}-{port}"
    return {
        "matches": [{"path": {"type": "Exact", "value": f"/{path}"}}],
        "backendRefs": [{"name": service, "port": port}],
    }


def route_to(*services: str) -> str:
    """Return a route with a rule for each Service."""
    return edge_route("web", *map(rule_for, services))


def ask(site: Site, address: Address, path: str) -> str:
    """Return the server name and the client that the server names, or the status of a failed request."""
    return site.ask(address, f"{HOST}/{path}").answered_by


def service_with_ports(name: str, server: TcpServer) -> str:
    """Return a Service with the named port and a second one."""
    ports = {PORT_NAME: HTTPS, "more": 8443}
    return f"{service_manifest(name, ports, app='HTTPS')}\n---\n{endpoints(name, dict.fromkeys(ports, (server,)))}"


def client_certificate(name: str, **more: str) -> Mapping[str, Any]:
    """Return the TLS settings of a Gateway that presents the certificate of a Secret."""
    return {"backend": {"clientCertificateRef": {"name": name, **more}}}


async def greet(stream: Stream) -> None:
    """Send the host's name, and read until the client closes."""
    reader, writer = stream
    writer.write(f"{HOST}\n".encode())
    await reader.read()


async def first_line(address: Address) -> str:
    """Return the first line of a server without TLS."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*address)
        line = await reader.readline()
        writer.close()
        return line.decode().strip()


def policy_conditions(site: Site, name: str) -> Mapping[str, tuple[str, str]]:
    """Return the conditions of a policy at its only Gateway."""
    (entry,) = site.status(f"backendtlspolicy/{name}")["ancestors"]
    assert entry["ancestorRef"]["name"] == "edge"
    return conditions(entry)


def wait_for_policy(site: Site, name: str, accepted: str, refs: str = "ResolvedRefs") -> None:
    """Wait until the conditions of a policy have these reasons."""
    expected = {
        "Accepted": ("True" if accepted == "Accepted" else "False", accepted),
        "ResolvedRefs": ("True" if refs == "ResolvedRefs" else "False", refs),
    }

    def same() -> bool:
        shown = policy_conditions(site, name)
        assert {kind: shown[kind] for kind in expected} == expected, shown
        return True

    until(same, f"{expected} of {name}")


@pytest.mark.conformance("BackendTLSPolicy")
def test_a_gateway_calls_the_backends_of_a_policy_over_tls(site: Site) -> None:
    serve(site, "secured", "open")
    serve(site, "undeclared", app="")
    site.apply(
        manifest(server_secret("ended", PAIRS["P-256"], namespace="")),
        edge_gateway(
            web_listener("https", HOST, protocol="HTTPS", tls={"certificateRefs": [{"name": "ended"}]}),
            web_listener("http", number=PLAIN_PORT),
        ),
        route_to("secured", "undeclared"),
        tls_policy("secured", "secured"),
        tls_policy("undeclared", "undeclared", host="notright.example.com"),
    )
    address = site.accepted("web")
    wait_for_policy(site, "secured", "Accepted")
    assert policy_conditions(site, "secured")["headgate.dev/Programmed"] == ("True", "Programmed")
    assert site.ask_tls(address, HOST, HOST, path="/secured") == "200"
    assert site.ask_tls(address, HOST, HOST, path="/undeclared") in FAILED
    plain = address._replace(port=PLAIN_PORT)
    assert ask(site, plain, "secured") == OK
    site.apply(tls_policy("undeclared", "undeclared"))
    site.host.settle()
    assert ask(site, plain, "undeclared") == OK
    site.apply(route_to("secured", "open"))
    site.wait_for_parent("httproute/web", ResolvedRefs="UnsupportedProtocol")
    site.host.settle()
    assert ask(site, plain, "open") == "500"


@pytest.mark.conformance("BackendTLSPolicySANValidation")
def test_a_server_must_have_one_of_the_names_of_the_policy(site: Site) -> None:
    dns, uri = {"type": "Hostname", "hostname": HOST}, {"type": "URI", "uri": URI}
    wrong_dns, wrong_uri = (
        {**dns, "hostname": "def.example.com"},
        {**uri, "uri": "spiffe://def.example.com/test-identity"},
    )
    names: Mapping[str, Sequence[Any]] = {
        "dns": [dns],
        "uri": [uri],
        "both": [uri, dns],
        "either": [wrong_uri, dns],
        "no-dns": [wrong_dns],
        "no-uri": [wrong_uri],
        "neither": [wrong_uri, wrong_dns],
    }
    serve(site, *names)
    site.apply(
        edge_gateway(),
        route_to(*names),
        *(tls_policy(name, name, port=PORT_NAME, subjectAltNames=several) for name, several in names.items()),
    )
    address = site.accepted("web")
    for name in names:
        wait_for_policy(site, name, "Accepted")
    site.host.settle()
    shown = {name: ask(site, address, name) for name in names}
    assert {name for name, answer in shown.items() if answer == OK} == {"dns", "uri", "both", "either"}
    assert {shown[name] for name in ("no-dns", "no-uri", "neither")} <= FAILED


@pytest.mark.conformance("BackendTLSPolicyInvalidCACertificateRef", "BackendTLSPolicyInvalidKind")
def test_backends_whose_policy_has_no_usable_ca_get_no_request(site: Site) -> None:
    names = ("missing", "malformed", "kind", "other-ca", "one-of-two")
    serve(site, *names)
    ref = {"group": "", "kind": "ConfigMap", "name": "ca"}
    refs = {
        "missing": [{**ref, "name": "nowhere"}],
        "malformed": [{**ref, "name": "malformed"}],
        "kind": [{**ref, "group": "example.com", "kind": "Unknown"}],
        "other-ca": [{**ref, "name": "other"}],
        "one-of-two": [{**ref, "name": "nowhere"}, ref],
    }
    site.apply(
        ca_config("malformed", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ca_config("other", OTHER.pem),
        edge_gateway(),
        edge_route("web", *map(rule_for, names), rule_for("v1", 8080)),
        tls_policy("plain", "v1", caCertificateRefs=refs["missing"]),
        *(tls_policy(name, name, caCertificateRefs=several) for name, several in refs.items()),
    )
    address = site.accepted("web")
    wait_for_policy(site, "missing", "NoValidCACertificate", "InvalidCACertificateRef")
    wait_for_policy(site, "malformed", "NoValidCACertificate", "InvalidCACertificateRef")
    wait_for_policy(site, "kind", "NoValidCACertificate", "InvalidKind")
    wait_for_policy(site, "other-ca", "Accepted")
    wait_for_policy(site, "one-of-two", "Accepted", "InvalidCACertificateRef")
    site.host.settle()
    assert {ask(site, address, name) for name in ("missing", "malformed", "kind")} == {"503"}
    assert (ask(site, address, "v1-8080"), site.backends["v1"].requests) == ("503", 0)  # v1 has no TLS
    assert ask(site, address, "other-ca") in FAILED
    assert ask(site, address, "one-of-two") == OK
    site.apply(ca_config("nowhere"))
    wait_for_policy(site, "missing", "Accepted")
    site.host.settle()
    assert ask(site, address, "missing") == OK


@pytest.mark.conformance("BackendTLSPolicyConflictResolution")
def test_the_oldest_policy_for_a_target_decides_and_one_for_a_port_before_one_for_the_service(site: Site) -> None:
    serve(site, "whole", "port", more_names=["other.example.com"])
    server = serve(site, "both", more_names=["other.example.com"])
    site.apply(service_with_ports("both", server))
    site.apply(
        edge_gateway(),
        edge_route("web", rule_for("whole"), rule_for("port"), rule_for("both"), rule_for("both", 8443)),
        tls_policy("a-whole", "whole", host="other.example.com"),
        tls_policy("b-whole", "whole"),
        tls_policy("a-port", "port", port=PORT_NAME, host="other.example.com"),
        tls_policy("b-port", "port", port=PORT_NAME),
        tls_policy("both", "both"),
        tls_policy("both-port", "both", port=PORT_NAME, host="other.example.com"),
    )
    address = site.accepted("web")
    for name in ("a-whole", "a-port", "both", "both-port"):
        wait_for_policy(site, name, "Accepted")
    for name in ("b-whole", "b-port"):
        wait_for_policy(site, name, "Conflicted")
    site.host.settle()
    other = "other.example.com none"
    assert [ask(site, address, path) for path in ("whole", "port", "both", "both-8443")] == [other, other, other, OK]
    site.delete("backendtlspolicy/a-whole")
    wait_for_policy(site, "b-whole", "Accepted")
    site.host.settle()
    assert ask(site, address, "whole") == OK


@pytest.mark.conformance("BackendTLSPolicyObservedGenerationBump")
def test_the_status_of_a_policy_names_its_current_generation(site: Site) -> None:
    serve(site, "secured")
    site.apply(edge_gateway(), route_to("secured"), tls_policy("system", "secured", wellKnownCACertificates="System"))
    address = site.accepted("web")
    wait_for_policy(site, "system", "Accepted")
    before = site.generation("backendtlspolicy/system")
    assert ask(site, address, "secured") in FAILED  # no CA of the system has signed the server's certificate
    site.patch("backendtlspolicy/system", {"validation": {"hostname": "foo.example.com"}})
    wait_for_policy(site, "system", "Accepted")
    assert site.generation("backendtlspolicy/system") == before + 1


def test_calls_over_grpc_copies_and_connections_are_sent_over_tls(site: Site) -> None:
    copies = serve(site, "copied")
    greeting = TcpServer(site.host.network, greet, server_context(issued(HOST)))
    with closing(SecureGrpcServer()) as calls:
        mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "copied", "port": HTTPS}}}
        site.apply(
            protocol_service("calls", calls, app="HTTPS", port=HTTPS),
            protocol_service("greeting", greeting, app="tls", port=HTTPS),
            edge_gateway(web_listener(), web_listener("tcp", protocol="TCP", number=PLAIN_PORT)),
            edge_route(
                "web",
                {"backendRefs": [{"name": "v1", "port": 8080}], "filters": [mirror]},
                parent={"sectionName": "http"},
                hosts=["web.example.com"],
            ),
            edge_route(
                "calls",
                rule_of("calls", port=HTTPS),
                kind="GRPCRoute",
                parent={"sectionName": "http"},
                hosts=["calls.example.com"],
            ),
            edge_route("greeting", rule_of("greeting", port=HTTPS), kind="TCPRoute", parent={"sectionName": "tcp"}),
            *(tls_policy(name, name) for name in ("copied", "calls", "greeting")),
        )
        address = site.accepted("web", "grpcroute/calls", "tcproute/greeting")
        with grpc.insecure_channel(str(address), (("grpc.default_authority", "calls.example.com"),)) as channel:
            assert channel.unary_unary("/Echo/One")(b"", timeout=DEADLINE_S) == b"secured"
        assert site.ask(address, "web.example.com/").answered_by == "v1"
        until(lambda: copies.answered, "a copy")
        assert site.host.network.run(first_line(address._replace(port=PLAIN_PORT))) == HOST


@pytest.mark.conformance("GatewayTLSBackendClientCertificate")
def test_a_gateway_presents_its_certificate_to_backends_with_a_policy(site: Site) -> None:
    serve(site, "secured", client_roots=TRUSTED.pem)
    shown = manifest(server_secret("client", issued("gateway.example.com"), namespace=""))
    site.apply(
        shown, edge_gateway(tls=client_certificate("client")), route_to("secured"), tls_policy("secured", "secured")
    )
    address = site.accepted("web")
    wait_for_policy(site, "secured", "Accepted")
    resolved = ("True", "ResolvedRefs")
    until(lambda: conditions(site.status("gateway/edge"))["ResolvedRefs"] == resolved, "the Secret of the Gateway")
    assert ask(site, address, "secured") == f"{HOST} gateway.example.com"
    site.apply(manifest(server_secret("client", issued("renewed.example.com"), namespace="")))
    site.host.settle()

    assert ask(site, address, "secured") == f"{HOST} renewed.example.com"
    site.apply(edge_gateway())
    site.accepted("web")
    assert ask(site, address, "secured") in FAILED


@pytest.mark.conformance("GatewayInvalidTLSBackendConfiguration")
def test_a_gateway_says_why_its_certificate_for_backends_cannot_be_used(site: Site) -> None:
    neighbor = site.neighbor()
    secret = manifest(server_secret("client", issued("gateway.example.com"), namespace=""))
    neighbor.apply(secret)
    refs = {
        "missing": {"name": "nowhere"},
        "group": {"name": "client", "group": "example.com"},
        "kind": {"name": "client", "kind": "ConfigMap"},
        "malformed": {"name": "malformed"},
        "neighbor": {"name": "client", "namespace": neighbor.namespace},
    }
    site.apply(
        secret,
        manifest(server_secret("malformed", PAIRS["broken certificate"], namespace="")),
        *(
            edge_gateway(web_listener(number=PORT + 1 + index), name=name, tls=client_certificate(**ref))
            for index, (name, ref) in enumerate(refs.items())
        ),
    )
    for name in refs:
        reason = "RefNotPermitted" if name == "neighbor" else "InvalidClientCertificateRef"

        def faulty(name: str = name, reason: str = reason) -> bool:
            shown = conditions(site.status(f"gateway/{name}"))
            assert (shown["ResolvedRefs"], shown["Accepted"]) == (("False", reason), ("True", "Accepted"))
            return True

        until(faulty, f"{reason} of {name}")
    neighbor.apply(route_grant("client", site.namespace, kind="Gateway", to="Secret"))

    def usable() -> bool:
        return conditions(site.status("gateway/neighbor"))["ResolvedRefs"] == ("True", "ResolvedRefs")

    until(usable, "the certificate of the neighbor")


def test_a_server_outside_the_mesh_has_a_status_at_the_gateway_whose_route_leads_to_it(site: Site) -> None:
    """GEP-4488. The name has no address: its requests get 503, and those of the other backend do not."""
    refs = [{"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "hosted"}]
    outside = external_backend("hosted", "hosted.invalid", tls={"mode": "ServerOnly"}) | {
        "metadata": {"name": "hosted"}
    }
    site.apply(
        edge_gateway(),
        manifest(outside),
        edge_route("web", {"matches": [path("/out")], "backendRefs": refs}, rule_of("v1")),
    )
    address = site.accepted("web")

    def accepted() -> bool:
        (entry,) = site.status("xbackend/hosted")["parents"]
        assert (entry["parentRef"]["kind"], entry["parentRef"]["name"]) == ("Gateway", "edge")
        shown = {kind: state for kind, (state, _) in conditions(entry).items()}
        assert shown == {"Accepted": "True", "ResolvedRefs": "True", "headgate.dev/Programmed": "True"}, shown
        return True

    until(accepted, "the status of the XBackend")
    assert site.ask(address, f"{HOST}/out").status == 503
    assert site.ask(address, f"{HOST}/").answered_by == "v1"
    site.wait_for_parent("httproute/web", ResolvedRefs="ResolvedRefs")
