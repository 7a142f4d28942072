"""Features of the Gateway API with real pods: one Gateway with listeners of all kinds, in front of two pods.

The tests of one machine (`tests/e2e/gateway_api`) have the details. These show that a cluster leads there: through the ports of a
Gateway's Service, proxies in pods of their own, and a sidecar.
"""

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from tests.authority import Authority
from tests.e2e.gateway_api.objects import path
from tests.e2e.gateway_api.site import CLOSED, ask_tls, greeting, trusting
from tests.e2e.gateway_api.tls_backends import HOST, TRUSTED, HttpsServer
from tests.make.objects import (
    Object,
    authorization_policy,
    caller_rule,
    config_map,
    external_backend,
    external_ref,
    gateway,
    listener,
    obj,
    port,
    route,
    rule,
    service,
    service_parent,
)
from tests.make.server_certificates import NAME, PAIRS
from tests.make.server_certificates import secret as server_secret
from tests.pods.cluster_host import traffic_deployment
from tests.pods.conftest import SYSTEM, Cluster, http_service, mesh_namespace, until, wait_for_port
from tests.pods.gateway_api import install_gateway_api
from tests.pods.traffic_pod import ControlledPod
from tests.wire import Address, Answer, Network, Request, ask_once

from headgate.model.identities import GATEWAY_ACCOUNT

PLACE = "features"
HTTP, HTTPS, TLS, DATAGRAMS, ADDED = 8080, 8443, 9443, 5300, 8081
"""The ports of the Gateway; its ListenerSet adds the last one."""
SERVERS = {"ann": ("auth", 9301), "db": ("tls", 9302), "names": ("datagrams", 9303)}
"""The servers in the pod v1 beside its HTTP server."""
EMPLOYEES = Authority("employees")
CLIENTS = {"employee": EMPLOYEES.issue("", "employee"), "none": None}
ORIGIN = "https://www.example.com"
RESPONSE_S = 1
"""How long a client waits for the response to a datagram before it sends another one."""


class Edge(NamedTuple):
    """The Gateway's address, and the pods behind it; `v1` has no sidecar, `v2` has one, and knows the name of a server outside."""

    cluster: Cluster
    network: Network
    host: str
    v1: ControlledPod
    v2: ControlledPod

    def ask(
        self, target: str = "/", headers: Mapping[str, str] | None = None, *, number: int = HTTP, method: str = "GET"
    ) -> Answer:
        """Send a request to a port of the Gateway."""
        request = Request(Address(self.host, number), target, NAME, headers or {}, method=method)
        return self.network.run(ask_once(request))


@pytest.fixture(scope="module")
def edge(shared_cluster: Cluster) -> Iterator[Edge]:
    cluster, network = shared_cluster, Network()
    install_gateway_api(cluster)
    plain = traffic_deployment(PLACE, "v1", servers=SERVERS, part="both")
    plain["spec"]["template"]["metadata"]["labels"]["headgate.dev/inject"] = "disabled"
    meshed = traffic_deployment(PLACE, "v2", part="both")
    meshed["spec"]["template"]["spec"]["hostAliases"] = [{"ip": cluster.host_address, "hostnames": [HOST]}]
    cluster.apply(mesh_namespace(PLACE), plain, meshed, *services())
    cluster.apply(*certificates(), *entries(), *routes())
    cluster.wait_rolled_out(PLACE, "v1", "v2")
    address, other = (pod_address(cluster, name) for name in ("v1", "v2"))
    shown = ssl.get_server_certificate((address, SERVERS["db"][1]))
    cluster.apply(config_map("database", {"ca.crt": shown}, namespace=PLACE))
    cluster.kubectl("-n", PLACE, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    cluster.wait_in_sync(PLACE)
    host = cluster.get("gateway/edge", PLACE)["status"]["addresses"][0]["value"]
    for number in (HTTP, HTTPS, TLS, ADDED):
        wait_for_port(host, number)
    with closing(ControlledPod(address)) as v1, closing(ControlledPod(other)) as v2:
        yield Edge(cluster, network, host, v1, v2)
    network.close()
    cluster.kubectl("-n", PLACE, "delete", "gateways,listenersets", "--all")


def pod_address(cluster: Cluster, name: str) -> str:
    """Return the address of the only pod of a Deployment."""
    (pod,) = cluster.get("pods", PLACE, f"app={name}")["items"]
    return str(pod["status"]["podIP"])


def services() -> Iterator[Object]:
    """Yield a Service for each server."""
    for name in ("v1", "v2"):
        yield http_service(PLACE, name, app=name)
    yield http_service(PLACE, "both", part="both")
    of_servers = {
        "ann": port(9000, "grpc", app="kubernetes.io/h2c"),
        "db": port(9000, "tls", app="tls"),
        "secured": port(9000, "tcp", app="tcp"),
        "names": port(DATAGRAMS, "names") | {"protocol": "UDP"},
    }
    for name, written in of_servers.items():
        target = SERVERS.get(name, SERVERS["db"])[1]
        yield service(name, written | {"targetPort": target}, selector={"app": "v1"}, namespace=PLACE)


def certificates() -> Iterator[Object]:
    """Yield the Gateway's certificate, the authority of its clients, and the TLS of the Service `secured`."""
    yield server_secret("edge", PAIRS["P-256"], namespace=PLACE)
    yield config_map("employees", {"ca.crt": EMPLOYEES.pem}, namespace=PLACE)
    validation = {"hostname": "db", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "database"}]}
    spec = {"targetRefs": [{"group": "", "kind": "Service", "name": "secured"}], "validation": validation}
    yield obj("BackendTLSPolicy", "secured", namespace=PLACE, spec=spec)
    yield external_backend("outside", "outside.invalid", tls={"mode": "ServerOnly"}) | {
        "metadata": {"name": "outside", "namespace": PLACE}
    }


def entries() -> Iterator[Object]:
    """Yield the Gateway and its ListenerSet."""
    own: Object = {"certificateRefs": [{"name": "edge"}]}
    trusted = {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "employees"}]}}
    yield gateway(
        "edge",
        listener(HTTP, "http"),
        listener(HTTPS, "https", protocol="HTTPS") | {"tls": own},
        listener(TLS, "passed", protocol="TLS") | {"hostname": "passed.example", "tls": {"mode": "Passthrough"}},
        listener(TLS, "ended", protocol="TLS") | {"hostname": "ended.example", "tls": own},
        listener(DATAGRAMS, "names", protocol="UDP"),
        namespace=PLACE,
        allowedListeners={"namespaces": {"from": "Same"}},
        tls={"frontend": {"default": {}, "perPort": [{"port": HTTPS, "tls": trusted}]}},
    )
    added = [listener(ADDED, "added")]
    yield obj("ListenerSet", "more", namespace=PLACE, spec={"parentRef": {"name": "edge"}, "listeners": added})


def routes() -> Iterator[Object]:
    """Yield the routes of the Gateway and its ListenerSet."""
    asked = {"protocol": "GRPC", "backendRef": {"name": "ann", "port": 9000}, "grpc": {}}
    rules = (
        rule({"v1": 1}, matches=[path("/auth")], filters=[{"type": "ExternalAuth", "externalAuth": asked}]),
        rule({"v1": 1}, matches=[path("/cors")], filters=[{"type": "CORS", "cors": {"allowOrigins": [ORIGIN]}}]),
        rule({"both": 1}, matches=[path("/session")], sessionPersistence={"sessionName": "user"}),
        {"matches": [path("/outside")], "backendRefs": [external_ref("outside")]},
        rule({"v2": 1}, matches=[path("/v2")]),
        rule({"v1": 1}),
    )
    for section in ("http", "https"):
        yield route(section, *rules, parents=[to_edge(section)], namespace=PLACE)
    yield route("added", rule({"v2": 1}), parents=[{"kind": "ListenerSet", "name": "more"}], namespace=PLACE)
    for name, target in (("passed", "db"), ("ended", "secured")):
        ends = rule({target: 1}, port=9000)
        hosts = [f"{name}.example"]
        yield route(name, ends, parents=[to_edge(name)], kind="TLSRoute", hostnames=hosts, namespace=PLACE)
    answered = rule({"names": 1}, port=DATAGRAMS)
    yield route("names", answered, parents=[to_edge("names")], kind="UDPRoute", namespace=PLACE)


def to_edge(section: str) -> Object:
    """Return a parentRef to a listener of the Gateway."""
    return {"name": "edge", "sectionName": section}


def conditions(edge: Edge, what: str) -> Mapping[str, str]:
    """Return the statuses of conditions at the only parent of an object."""
    (parent,) = edge.cluster.get(what, PLACE)["status"]["parents"]
    return {item["type"]: item["status"] for item in parent["conditions"]}


def test_a_listener_of_a_listener_set_has_a_port_of_the_gateways_service(edge: Edge) -> None:
    assert edge.ask(number=ADDED).answered_by == "v2"
    assert edge.ask().answered_by == "v1"


def test_the_gateway_passes_tls_on_or_ends_it_and_calls_the_backend_over_tls(edge: Edge) -> None:
    """Its backend accepts TLS only, and the BackendTLSPolicy names its certificate."""
    where = Address(edge.host, TLS)
    shown = {
        name: edge.network.run(greeting(where, f"{name}.example", trusting())) for name in ("passed", "ended", "other")
    }
    assert shown == {"passed": "db: db", "ended": f"{NAME}: db", "other": CLOSED}


def test_clients_of_a_port_present_certificates_of_its_authority(edge: Edge) -> None:
    where = Address(edge.host, HTTPS)
    request = Request(where, "/", NAME)
    statuses = {
        name: edge.network.run(ask_tls(where, NAME, request, trusting(client))) for name, client in CLIENTS.items()
    }
    assert statuses == {"employee": "200", "none": CLOSED}


def test_datagrams_reach_the_pod_of_a_udp_route(edge: Edge) -> None:
    assert until(lambda: edge.network.run(datagram(Address(edge.host, DATAGRAMS))), "an answered datagram") == "names"


async def datagram(where: Address) -> str:
    """Send a datagram; return the response, empty if none came: the datagram may be lost before its port is open."""
    loop = asyncio.get_running_loop()
    responses: asyncio.Queue[bytes] = asyncio.Queue()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:  # noqa: ARG002  # the client has one server
            responses.put_nowait(data)

    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=where)
    try:
        transport.sendto(b"name?")
        async with asyncio.timeout(RESPONSE_S):
            return (await responses.get()).decode()
    except TimeoutError:
        return ""
    finally:
        transport.close()


def test_an_authorization_server_in_a_pod_decides(edge: Edge) -> None:
    assert edge.ask("/auth", {"x-user": "ann"}).answered_by == "v1"
    assert edge.ask("/auth", {"x-user": "bob"}).status == 403


def test_the_gateway_answers_preflights(edge: Edge) -> None:
    announced = {"origin": ORIGIN, "access-control-request-method": "GET"}
    assert edge.ask("/cors", announced, method="OPTIONS").headers["access-control-allow-origin"] == ORIGIN
    refused = edge.ask("/cors", announced | {"origin": "https://other.example"}, method="OPTIONS")
    assert "access-control-allow-origin" not in refused.headers


def test_requests_of_a_session_stay_at_a_pod(edge: Edge) -> None:
    first = edge.ask("/session")
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert {edge.ask("/session", {"cookie": cookie}).answered_by for _ in range(8)} == {first.answered_by}
    assert {edge.ask("/session").answered_by for _ in range(8)} == {"v1", "v2"}


def test_a_server_outside_whose_name_has_no_address_fails_its_own_requests_only(edge: Edge) -> None:
    assert edge.ask("/outside").status == 503
    assert edge.ask().answered_by == "v1"
    expected = {"Accepted": "True", "ResolvedRefs": "True", "headgate.dev/Programmed": "True"}
    until(lambda: conditions(edge, "xbackend/outside") == expected, "the status of the XBackend")


def test_a_sidecar_calls_a_server_outside_over_tls_by_its_name(edge: Edge) -> None:
    with closing(HttpsServer(edge.network, at=Address(edge.cluster.host_address, 0))) as server:
        validation = {"hostname": HOST, "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "hosted"}]}
        tls = {"mode": "ServerOnly", "validation": validation}
        hosted = external_backend("hosted", HOST, server.address.port, tls=tls)
        hosted["metadata"]["namespace"] = PLACE
        edge.cluster.apply(
            config_map("hosted", {"ca.crt": TRUSTED.pem}, namespace=PLACE),
            http_service(PLACE, "hosted", app="v1"),
            hosted,
            route(
                "hosted", {"backendRefs": [external_ref("hosted")]}, parents=[service_parent("hosted")], namespace=PLACE
            ),
        )
        edge.cluster.wait_in_sync(PLACE)
        cluster_ip = edge.cluster.get("service/hosted", PLACE)["spec"]["clusterIP"]
        request = Request(Address(cluster_ip, 8080), "/", "hosted")
        until(lambda: edge.v2.ask(request).status == 200, "a response of the server outside")
        assert edge.v2.ask(request).answered_by == f"{HOST} none"  # its server name, and no certificate of the client


def test_a_sidecar_allows_the_callers_that_a_policy_names(edge: Edge) -> None:
    """The policy names the Gateways' ServiceAccount; the other caller has no sidecar, so it has no identity."""
    cluster_ip = edge.cluster.get("service/v2", PLACE)["spec"]["clusterIP"]
    v2 = Request(Address(cluster_ip, 8080), "/", "v2")
    assert (edge.ask("/v2").answered_by, edge.v1.ask(v2).answered_by) == ("v2", "v2")
    allowed = authorization_policy("v2", {"app": "v2"}, caller_rule(f"{SYSTEM}/{GATEWAY_ACCOUNT}"), namespace=PLACE)
    edge.cluster.apply(allowed)
    until(lambda: edge.v1.ask(v2).status == 403, "a denied request")
    assert edge.ask("/v2").answered_by == "v2"
    edge.cluster.kubectl("-n", PLACE, "delete", "xauthorizationpolicy/v2")
    until(lambda: edge.v1.ask(v2).answered_by == "v2", "an allowed request")
