"""A Gateway with listeners of all kinds, a ListenerSet, and random policies, TLSRoutes and UDPRoutes for them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from tests.differential.permissions import JUDGE, JUDGE_PORT, JUDGES_PORT
from tests.make.objects import (
    GATEWAY_API,
    Object,
    config_map,
    endpoint_slice,
    external_backend,
    gateway,
    listener,
    obj,
    port,
    route,
    service,
)

GATEWAY = "edge"
DATAGRAMS = 5300
"""The UDP port of Services and of the Gateway."""
DATAGRAMS_OF_SET = 5301
"""The UDP port of the ListenerSet."""
NAMED = 6443
"""The TLS port of Services, whose TLSRoutes select a backend by the server name of a connection."""
SET = "more"
LISTENERS = (
    (8000, "", "http", "HTTP"),
    (8001, "*.example.com", "names", "HTTP"),
    (8002, "a.example.com", "one", "HTTP"),
    (8443, "", "https", "HTTPS"),
    (8444, "*.example.com", "secure-names", "HTTPS"),
    (8445, "a.example.com", "secure-one", "HTTPS"),
    (8445, "*.example.com", "secure-wildcard", "HTTPS"),
    (8446, "", "known", "HTTPS"),
    (8447, "*.example.com", "ended", "TLS"),
    (8447, "a.example.com", "passed", "TLS"),
    (8447, "b.example.com", "mixed", "HTTPS"),
    (8448, "", "asked", "HTTPS"),
    (DATAGRAMS, "", "udp", "UDP"),
    (9000, "", "tcp", "TCP"),
    (9001, "", "tcp2", "TCP"),
)
OF_SET = (
    (8001, "b.example.com", "b", "HTTP"),
    (8001, "*.example.com", "taken", "HTTP"),
    (8003, "", "all", "HTTP"),
    (8446, "b.example.com", "known-b", "HTTPS"),
    (8447, "*.b.example.com", "ended-b", "TLS"),
    (DATAGRAMS_OF_SET, "", "udp-b", "UDP"),
    (9001, "", "no-tcp", "HTTP"),
    (9002, "", "tcp-b", "TCP"),
)
"""The listeners of the ListenerSet; `taken` and `no-tcp` are in conflict with the Gateway's."""
SENT_TO = (
    *(8000, 8000, 8000, 8001, 8001, 8001, 8002, 8003, 9000, 9001, 9002),
    *(8443, 8443, 8444, 8445, 8445, 8446, 8446, 8447, 8447, 8447, 8448),
    *(DATAGRAMS, DATAGRAMS, DATAGRAMS_OF_SET),
)
SECURE = frozenset(port for port, _, _, protocol in LISTENERS if protocol in {"HTTPS", "TLS"})
VALIDATED = frozenset((8446, 8448))
"""Ports that request certificates of clients."""
SERVER_NAMES = ("a.example.com", "b.example.com", "a.b.example.com", "other")
OF_NAMED = (*SERVER_NAMES, "A.Example.com", "")
"""The server names of connections to the TLS ports of Services; those without one are plaintext."""
HOSTS = (
    "a.example.com",
    "b.example.com",
    "a.b.example.com",
    "example.com",
    "A.Example.com.",
    "a.example.com:8001",
    "other",
    "A.Example.com",
)
CERTIFICATE = "edge"
AUTHORITY = "ca"
"""The ConfigMap of the authority that signs the certificates of servers, and those of clients."""
CLIENTS = ("", "client", "stranger")
"""Clients without a certificate, with one of the authority, and with one of another authority."""
ALLOWED: tuple[Object, ...] = (
    {"namespaces": {"from": "All"}},
    {"namespaces": {"from": "None"}},
    {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}},
    {"kinds": [{"kind": "GRPCRoute"}]},
    {"kinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}], "namespaces": {"from": "Same"}},
)
"""Routes that may attach to a listener."""
SECTIONS = ("", "", "", "p8080", "p9090", "gone")
ALT_NAMES: tuple[Object, ...] = ({}, {"subjectAltNames": [{"type": "Hostname", "hostname": "*.example.com"}]})
TLS_HOSTNAMES = (("a.example.com",), ("*.example.com",), ("b.example.com", "*.b.example.com"))


def random_edge(draw: st.DrawFn, place: str) -> list[Object]:
    """Return the objects of `edge_gateway` with random routes that listeners allow, the servers outside the mesh, and the judge."""
    settings: Object = {"defaultScope": "All"} if draw(st.integers(0, 2)) else {}
    if draw(st.booleans()):
        settings["tls"] = {"backend": {"clientCertificateRef": {"name": CERTIFICATE}}}
    names = st.sampled_from([name for _, _, name, _ in LISTENERS])
    allowed = draw(st.dictionaries(names, st.sampled_from(ALLOWED), max_size=2))
    return [*edge_gateway(place, allowed=allowed, **settings), *_externals(draw), *_judge()]


def _externals(draw: st.DrawFn) -> Iterator[Object]:
    """Yield the XBackends that `filters.EXTERNALS` names. The lab leads their hostnames to members."""
    proven: Object = {"mode": "ServerOnly", "validation": validation(AUTHORITY)}
    kinds: dict[str, Sequence[Object]] = {
        "x-plain": ({}, {"protocol": "HTTP"}, {"tls": {"mode": "None"}}, {"protocol": "TCP"}),
        "x-tls": (
            {"tls": proven},
            {"tls": proven},
            {"tls": {"mode": "ServerOnly", "validation": validation("gone")}},
            {"tls": {"mode": "ClientAndServer", "clientCertificateRef": {"name": CERTIFICATE}}},
        ),
        "x-h2": ({"protocol": "HTTP2"}, {"protocol": "H2C"}, {"protocol": "H2C", "tls": proven}),
    }
    for number, (name, specs) in enumerate(kinds.items()):
        place = {"port": f"member-{number}", "name": "web"}
        yield external_backend(name, f"{name}.example.org", **draw(st.sampled_from(specs)), port=place)


def _judge() -> Iterator[Object]:
    """Yield the Service of the authorization server over gRPC, and its endpoint."""
    yield service(JUDGE, port(JUDGE_PORT, "grpc", app="kubernetes.io/h2c"), clusterIP="address-99")
    yield endpoint_slice(JUDGE, ["127.0.0.1"], {"grpc": JUDGES_PORT})


def edge_gateway(place: str, *, allowed: Mapping[str, Object] | None = None, **spec: Any) -> Iterator[Object]:
    """Yield the Gateway, which has its own address, and the objects with its certificate and the authority of its clients.

    `allowed` has the routes that listeners allow, by the listener's name; `spec` has further fields of the Gateway.
    """
    trusted = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": AUTHORITY}]}
    ports = [
        {"port": 8446, "tls": {"validation": trusted}},
        {"port": 8448, "tls": {"validation": {**trusted, "mode": "AllowInsecureFallback"}}},
    ]
    rules = {name: {"allowedRoutes": routes} for name, routes in (allowed or {}).items()}
    yield gateway(
        GATEWAY,
        *(_listener(written) | rules.get(written[2], {}) for written in LISTENERS),
        allowedListeners={"namespaces": {"from": "Same"}},
        **spec | {"tls": {"frontend": {"default": {}, "perPort": ports}, **spec.get("tls", {})}},
        status={"addresses": [{"type": "IPAddress", "value": place}]},
    )
    yield obj("Secret", CERTIFICATE, type="kubernetes.io/tls", data={"tls.crt": "chain", "tls.key": "key"})
    yield config_map(AUTHORITY, {"ca.crt": "authority"})


def listener_set(time: str) -> Object:
    """Return the ListenerSet of the Gateway."""
    spec = {"parentRef": {"name": GATEWAY}, "listeners": [*map(_listener, OF_SET)]}
    return obj("ListenerSet", SET, spec=spec, metadata={"creationTimestamp": time})


def _listener(written: tuple[int, str, str, str]) -> Object:
    number, host, name, protocol = written
    tls: Object = {"certificateRefs": [{"name": CERTIFICATE}]}
    if name == "passed":
        tls = {"mode": "Passthrough"}
    secure = {"tls": tls} if protocol in {"HTTPS", "TLS"} else {}
    return listener(number, name, protocol=protocol) | ({"hostname": host} if host else {}) | secure


def policy(draw: st.DrawFn, name: str, time: str, services: Sequence[str]) -> Object:
    """Return a BackendTLSPolicy for Services; the CA of every fourth one is missing."""
    written = backend_policy(name, time, services, draw(st.sampled_from((AUTHORITY, AUTHORITY, AUTHORITY, "gone"))))
    for target in written["spec"]["targetRefs"]:
        if section := draw(st.sampled_from(SECTIONS)):
            target["sectionName"] = section
    written["spec"]["validation"] |= draw(st.sampled_from(ALT_NAMES))
    return written


def backend_policy(name: str, time: str, services: Sequence[str], authority: str) -> Object:
    """Return a BackendTLSPolicy, which the members fulfill. If the CA is missing, Gateways send the Services nothing."""
    targets = [{"group": "", "kind": "Service", "name": target} for target in services]
    spec = {"targetRefs": targets, "validation": validation(authority)}
    return obj("BackendTLSPolicy", name, version=f"{GATEWAY_API}/v1", spec=spec, metadata={"creationTimestamp": time})


def validation(authority: str) -> Object:
    """Return what the certificates of members fulfill, if the ConfigMap with the authority exists."""
    refs = [{"group": "", "kind": "ConfigMap", "name": authority}]
    return {"hostname": "a.example.com", "caCertificateRefs": refs}


def tls_route(draw: st.DrawFn, name: str, time: str, backends: list[Object]) -> Object:
    """Return a TLSRoute for all TLS listeners of the Gateway, or for one."""
    parent = {"name": GATEWAY} | draw(st.sampled_from(({}, {"sectionName": "ended"}, {"sectionName": "passed"})))
    hostnames = list(draw(st.sampled_from(TLS_HOSTNAMES)))
    metadata = {"creationTimestamp": time}
    return route(
        name, {"backendRefs": backends}, parents=[parent], kind="TLSRoute", metadata=metadata, hostnames=hostnames
    )


def udp_route(name: str, time: str, backends: list[Object]) -> Object:
    """Return a UDPRoute for the UDP listener of the Gateway."""
    parent = {"name": GATEWAY, "sectionName": "udp"}
    return route(
        name, {"backendRefs": backends}, parents=[parent], kind="UDPRoute", metadata={"creationTimestamp": time}
    )
