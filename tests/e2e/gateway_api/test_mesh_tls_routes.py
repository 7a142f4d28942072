"""TLSRoutes of Services: the server name of a client's TLS connection selects the backend, for all clients or those of a namespace."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.draws import fits
from tests.e2e.gateway_api.objects import PORT, edge_route, gateway_api_object, route_grant, rule_of
from tests.e2e.gateway_api.site import CLOSED, Site
from tests.e2e.gateway_api.test_tls_routes import BACKENDS, serve
from tests.e2e.running_mesh import RunningMesh
from tests.headgate_program import command
from tests.make.objects import service_parent
from tests.waiting import until

PROGRAMMED = {"headgate.dev/Programmed": "Programmed"}
CLIENT = """
import socket, ssl, sys, urllib.request
from urllib.parse import urlsplit
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
proxy = urlsplit(urllib.request.getproxies()["http"])
for name in sys.argv[2:]:
    tunnel = socket.create_connection((proxy.hostname, proxy.port))
    tunnel.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nhost: {sys.argv[1]}\\r\\n\\r\\n".encode())
    assert b" 200 " in tunnel.recv(4096)
    try:
        print(name, context.wrap_socket(tunnel, server_hostname=name).makefile().readline().strip() or "closed")
    except OSError:
        print(name, "closed")
"""


def tls_route(name: str, *backends: str, hosts: Sequence[str], **parent: Any) -> str:
    """Return a TLSRoute of the Service `front`; `parent` has fields of its parentRef."""
    rule = rule_of(*backends, port=PORT)
    return edge_route(name, rule, hosts=hosts, parent=service_parent("front", PORT, **parent), kind="TLSRoute")


def through_sidecar(mesh: RunningMesh, namespace: str, authority: str, *names: str) -> Mapping[str, str]:
    """Connect from a client with a sidecar in a namespace; return the server that greets for each server name."""
    program = (sys.executable, "-c", CLIENT, authority, *names)
    words = ("run", "--state", str(mesh.state), "-n", namespace, "--", *program)
    environment = {name: text for name, text in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run([*command(), *words], env=environment, capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def test_the_server_name_selects_the_backend_of_connections_to_a_service(site: Site) -> None:
    """A port without TLSRoutes takes every name. Weights apply to the connections for a name, and the oldest route has them."""
    serve(site)
    site.serve("front", "v1", tls=PORT)
    site.apply(
        tls_route("names", "tls-v1", hosts=["a.example", "*.b.example"]),
        tls_route("divided", "tls-v1:1", "tls-v2:3", hosts=["divided.example"]),
        tls_route("gone", "missing", hosts=["gone.example"]),
        tls_route("younger", "tls-v2", hosts=["a.example", "c.b.example"]),
    )
    site.wait_for_parent("tlsroute/names", Accepted="Accepted", ResolvedRefs="ResolvedRefs", **PROGRAMMED)
    site.wait_for_parent("tlsroute/gone", Accepted="Accepted", ResolvedRefs="BackendNotFound")
    site.wait_for_parent("tlsroute/younger", Accepted="Accepted", ResolvedRefs="ResolvedRefs", **PROGRAMMED)
    address = site.address("front", PORT)
    site.host.wait_for_port(address)
    expected = {
        "a.example": "db: tls-v1",
        "x.y.b.example": "db: tls-v1",
        "c.b.example": "db: tls-v2",
        "gone.example": CLOSED,
        "example": CLOSED,
        "": CLOSED,
    }
    assert site.greetings(address, *expected) == expected
    counts = [site.greeting(address, "divided.example") for _ in range(200)]
    assert fits(counts.count("db: tls-v2"), 3 / 4, of=200), counts


def test_routes_of_a_service_port_are_of_one_kind(site: Site) -> None:
    """An older TCPRoute gives way to a TLSRoute, and gets the connections back (GEP-1294)."""
    serve(site)
    site.serve("front", "v1", tls=PORT)
    spec = {"parentRefs": [service_parent("front", PORT)], "rules": [rule_of("tls-v2", port=PORT)]}
    site.apply(gateway_api_object("TCPRoute", "all", spec))
    site.wait_for_parent("tcproute/all", Accepted="Accepted", **PROGRAMMED)
    address = site.address("front", PORT)
    assert site.greeting(address, "a.example") == "db: tls-v2"
    site.apply(tls_route("one", "tls-v1", hosts=["a.example"]))
    site.wait_for_parent("tlsroute/one", Accepted="Accepted", **PROGRAMMED)
    site.wait_for_parent("tcproute/all", Accepted="Conflicted")
    assert site.greetings(address, "a.example", "b.example") == {"a.example": "db: tls-v1", "b.example": CLOSED}
    site.delete("tlsroute/one")
    site.wait_for_parent("tcproute/all", Accepted="Accepted", **PROGRAMMED)
    until(lambda: site.greeting(address, "b.example") == "db: tls-v2", "the TCPRoute has the connections")


def test_a_tls_route_in_another_namespace_is_for_clients_with_a_sidecar_there(mesh: RunningMesh, site: Site) -> None:
    """The explicit sidecar reads the server name in the tunnel of its client. The backend needs a grant."""
    serve(site)
    site.serve("front", "v1", tls=PORT)
    site.apply(tls_route("producer", "tls-v1", hosts=["*.example"]))
    site.wait_for_parent("tlsroute/producer", Accepted="Accepted", **PROGRAMMED)
    other, authority = site.neighbor(), f"front.{site.namespace}:{PORT}"
    rule = {"backendRefs": [{"name": "tls-v2", "namespace": site.namespace, "port": PORT}]}
    parent = service_parent("front", PORT, namespace=site.namespace)
    other.apply(edge_route("consumer", rule, hosts=["a.example"], parent=parent, kind="TLSRoute"))
    other.wait_for_parent("tlsroute/consumer", Accepted="Accepted", ResolvedRefs="RefNotPermitted")
    assert through_sidecar(mesh, other.namespace, authority, "a.example") == {"a.example": CLOSED}
    site.apply(route_grant("allowed", other.namespace, kind="TLSRoute"))
    other.wait_for_parent("tlsroute/consumer", Accepted="Accepted", ResolvedRefs="ResolvedRefs")
    own = {"a.example": "tls-v2", "b.example": CLOSED}
    assert through_sidecar(mesh, other.namespace, authority, *own) == own
    of_all = dict.fromkeys(own, "tls-v1")
    assert through_sidecar(mesh, site.namespace, authority, *of_all) == of_all
    assert site.greetings(site.address("front", PORT), *own) == dict.fromkeys(own, f"db: {BACKENDS[0]}")
