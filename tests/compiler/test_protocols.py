"""The protocols of Service ports, and their effect on splits (R61 to R67, D7, D16)."""

from itertools import chain

import pytest
from tests.compiler.split_meshes import ROOT, root_table
from tests.make.objects import backed_service, http_route_group, port, service, split
from tests.make.values import compiled

from headgate.compiler.protocols import KNOWN, NAMED, protocol_of
from headgate.compiler.reasons import Reason
from headgate.model.routing import Protocol, Target
from headgate.resources.core.service import ServicePort


def spoken(name="", app=""):
    return protocol_of(ServicePort(port=80, name=name, app_protocol=app)).protocol


@pytest.mark.parametrize(
    ("app", "protocol"),
    [
        ("http", Protocol.HTTP),
        ("HTTP", Protocol.HTTP),
        ("kubernetes.io/ws", Protocol.HTTP),
        ("http2", Protocol.HTTP2),
        ("kubernetes.io/h2c", Protocol.HTTP2),
        ("gRPC", Protocol.HTTP2),
        ("https", Protocol.TLS),
        ("kubernetes.io/wss", Protocol.TLS),
        ("tcp", Protocol.TCP),
        ("redis", Protocol.TCP),
        ("mongo", Protocol.TCP),
        ("tcp-server-first", Protocol.TCP_SERVER_FIRST),
        ("MySQL", Protocol.TCP_SERVER_FIRST),
        ("snmp", Protocol.TCP),
        ("ms-wbt-server", Protocol.TCP),
        ("elcsd", Protocol.TCP),
        ("echo", Protocol.TCP),
        ("caldav", Protocol.TCP),
        ("rsync", Protocol.TCP_SERVER_FIRST),
        ("http-alt", Protocol.HTTP),
        ("www", Protocol.HTTP),
        ("https-alt", Protocol.TLS),
        ("pcsync-https", Protocol.TLS),
        ("IMAPS", Protocol.TLS),
        ("syslog-tls", Protocol.TLS),
        ("domain-s", Protocol.TLS),
        ("example.com/own", Protocol.HTTP),
        ("website", Protocol.HTTP),
    ],
)
def test_app_protocol_selects_the_protocol_and_ignores_case(app, protocol):
    """R61, R63, D16. With appProtocol, the port's name has no influence."""
    assert spoken(app=app) is spoken(name="tcp-x", app=app) is spoken(name="http-x", app=app) is protocol


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("http-someport", Protocol.HTTP),
        ("tcp-someport", Protocol.TCP),
        ("tcp", Protocol.TCP),
        ("TCP-x", Protocol.TCP),
        ("tcp-server-first-x", Protocol.TCP_SERVER_FIRST),
        ("grpc-api", Protocol.HTTP2),
        ("grpc-web", Protocol.HTTP),
        ("grpc", Protocol.HTTP_ANY),
        ("https-x", Protocol.TLS),
        ("some-port", Protocol.HTTP),
        ("foo-tcp", Protocol.HTTP),
        ("tcpdump", Protocol.HTTP),
        ("redis", Protocol.TCP),
        ("redis-main", Protocol.TCP),
        ("echo", Protocol.HTTP),  # IANA's names are valid for appProtocol only; in port names they are common words
        ("snmp", Protocol.HTTP),
        ("domain-api", Protocol.HTTP),
        ("oracle-web", Protocol.HTTP),
        ("", Protocol.HTTP),
    ],
)
def test_the_prefix_of_the_port_name_selects_the_protocol_without_app_protocol(name, protocol):
    """R62, R64, R65, R66."""
    assert spoken(name=name) is protocol


def test_the_reason_quotes_the_app_protocol_as_written():
    for word in KNOWN:
        assert protocol_of(ServicePort(port=80, app_protocol=word.upper())).why.endswith(word.upper())


def test_app_protocol_accepts_the_iana_registry():
    """D16. The registry has about 6000 TCP names; the names that headgate defines itself keep their meaning."""
    assert sum(protocol is Protocol.TCP for protocol in KNOWN.values()) > 5900
    assert sum(protocol is Protocol.TLS for protocol in KNOWN.values()) > 100
    assert {KNOWN[word] is NAMED[word] for word in NAMED} == {True}
    assert KNOWN["http"] is Protocol.HTTP
    assert KNOWN["mysql"] is Protocol.TCP_SERVER_FIRST


def test_an_unknown_app_protocol_or_port_name_declares_no_protocol():
    assert protocol_of(ServicePort(port=80, app_protocol="http")).declared
    assert protocol_of(ServicePort(port=80, name="http")).declared
    assert not protocol_of(ServicePort(port=80, name="web")).declared
    assert not protocol_of(ServicePort(port=80, name="http", app_protocol="own")).declared


def split_mesh(root, *, matches=(), **backends):
    """Compile a root `web` that is split evenly between backends; `backends` maps their names to appProtocols."""
    built = [
        backed_service(name, ("", f"10.1.0.{number}"), number=80, app=app)
        for number, (name, app) in enumerate(backends.items())
    ]
    web = service("web", port(80, "main", app=root)), split("web", dict.fromkeys(backends, 1), matches=matches)
    return compiled(*web, http_route_group("group", {"all": {}}), *chain(*built))


def targets(result):
    (route,) = root_table(result).routes
    return {item.ref.service.partition("/")[2]: item.protocol for item in route.split.targets}


def reasons(result):
    return [finding.reason for finding in result.report.findings]


def test_an_undeclared_backend_gets_the_protocol_of_its_root():
    assert targets(split_mesh("tcp", v1="", v2="redis")) == {"v1": Protocol.TCP, "v2": None}
    assert targets(split_mesh("grpc", v1="", v2="http")) == {"v1": Protocol.HTTP2, "v2": None}
    assert targets(split_mesh("", v1="", v2="h2c")) == {"v1": None, "v2": None}


@pytest.mark.parametrize(("root", "other"), [("", "tcp"), ("http", "tls"), ("tcp", "http"), ("mysql", "grpc")])
def test_a_backend_with_a_different_protocol_gets_no_traffic(root, other):
    result = split_mesh(root, v1=root, v2=other)
    assert list(targets(result)) == ["v1"]
    assert reasons(result) == [Reason.PROTOCOL_MISMATCH]


def test_a_root_without_compatible_backends_serves_its_own_traffic():
    """D9. The same holds if no backend has the port."""
    assert root_table(split_mesh("tcp", v1="http")).routes[0].split.targets == (Target(ref=ROOT, weight=1),)


def test_a_split_with_matches_does_nothing_on_a_tcp_port():
    """D7."""
    result = split_mesh("tcp", v1="tcp", matches=["group"])
    assert targets(result) == {"web": None}
    assert root_table(result).protocol is Protocol.TCP
    assert reasons(result) == [Reason.MATCH_NOT_APPLICABLE]
    assert result.report.outcomes == ()
