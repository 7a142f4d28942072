"""What is spoken on a Service port, and what that means for a split (R61 to R67, D7, D16)."""

import pytest

from headgate.compiler.compile import compile_mesh
from headgate.compiler.protocols import KNOWN, NAMED, protocol_of
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot
from headgate.model.routing import PortRef, Protocol, Target
from headgate.resources.core import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, ServiceSpec
from headgate.resources.meta import Key, Metadata
from headgate.resources.registry import ROUTE_GROUP, SERVICE, TRAFFIC_SPLIT
from headgate.resources.smi import (
    Backend,
    HttpMatch,
    HTTPRouteGroup,
    HTTPRouteGroupSpec,
    MatchReference,
    TrafficSplit,
    TrafficSplitSpec,
)
from headgate.settings import Settings

ROOT = PortRef("default/web", 80)


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
def test_the_app_protocol_decides_in_any_case(app, protocol):
    """R61, D16; R63: whatever the name says."""
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
        ("echo", Protocol.HTTP),  # IANA's names count for appProtocol only: as names of ports they are everyday words
        ("snmp", Protocol.HTTP),
        ("domain-api", Protocol.HTTP),
        ("oracle-web", Protocol.HTTP),
        ("", Protocol.HTTP),
    ],
)
def test_the_beginning_of_the_name_decides_next(name, protocol):
    """R62, R64, R65, R66."""
    assert spoken(name=name) is protocol


def test_every_word_has_a_reason_that_quotes_the_user():
    for word in KNOWN:
        assert protocol_of(ServicePort(port=80, app_protocol=word.upper())).why.endswith(word.upper())


def test_the_list_is_the_registry_s_and_no_dozen_words():
    """D16: some 6000 names for TCP; what headgate has words of its own for keeps its meaning."""
    assert sum(protocol is Protocol.TCP for protocol in KNOWN.values()) > 5900
    assert sum(protocol is Protocol.TLS for protocol in KNOWN.values()) > 100
    assert {KNOWN[word] is NAMED[word] for word in NAMED} == {True}
    assert KNOWN["http"] is Protocol.HTTP
    assert KNOWN["mysql"] is Protocol.TCP_SERVER_FIRST


def test_only_a_known_word_is_a_declaration():
    assert protocol_of(ServicePort(port=80, app_protocol="http")).declared
    assert protocol_of(ServicePort(port=80, name="http")).declared
    assert not protocol_of(ServicePort(port=80, name="web")).declared
    assert not protocol_of(ServicePort(port=80, name="http", app_protocol="own")).declared


def service(app):
    return Service(spec=ServiceSpec(ports=(ServicePort(port=80, name="main", app_protocol=app),)))


def compiled(root, *, matches=False, **backends):
    """A root `web` that is split evenly between backends, each given by its appProtocol."""
    objects = {SERVICE.key("default", "web"): service(root)}
    for number, (name, app) in enumerate(backends.items()):
        objects[SERVICE.key("default", name)] = service(app)
        objects[Key("discovery.k8s.io", "EndpointSlice", "default", name)] = EndpointSlice(
            metadata=Metadata(labels={"kubernetes.io/service-name": name}),
            endpoints=(Endpoint(addresses=(f"10.1.0.{number}",)),),
            ports=(EndpointPort(name="main", port=80),),
        )
    group = HTTPRouteGroup(spec=HTTPRouteGroupSpec(matches=(HttpMatch(name="all"),)))
    objects[ROUTE_GROUP.key("default", "group")] = group
    objects[TRAFFIC_SPLIT.key("default", "web")] = TrafficSplit(
        spec=TrafficSplitSpec(
            service="web",
            matches=(MatchReference(kind="HTTPRouteGroup", name="group"),) if matches else (),
            backends=tuple(Backend(service=name, weight=1) for name in backends),
        )
    )
    return compile_mesh(Snapshot(objects=objects), Settings())


def table(result):
    (found,) = (item for item in result.mesh.tables if item.ref == ROOT)
    return found


def targets(result):
    (route,) = table(result).routes
    return {item.ref.service.partition("/")[2]: item.protocol for item in route.split.targets}


def reasons(result):
    return [finding.reason for finding in result.report.findings]


def test_a_backend_that_says_nothing_takes_what_its_root_has():
    assert targets(compiled("tcp", v1="", v2="redis")) == {"v1": Protocol.TCP, "v2": None}
    assert targets(compiled("grpc", v1="", v2="http")) == {"v1": Protocol.HTTP2, "v2": None}
    assert targets(compiled("", v1="", v2="h2c")) == {"v1": None, "v2": None}


@pytest.mark.parametrize(("root", "other"), [("", "tcp"), ("http", "tls"), ("tcp", "http"), ("mysql", "grpc")])
def test_a_backend_of_the_other_kind_is_left_out(root, other):
    result = compiled(root, v1=root, v2=other)
    assert list(targets(result)) == ["v1"]
    assert reasons(result) == [Reason.PROTOCOL_MISMATCH]


def test_nobody_of_the_roots_kind_leaves_the_root_to_itself():
    """D9, as with ports that no backend offers."""
    assert table(compiled("tcp", v1="http")).routes[0].split.targets == (Target(ref=ROOT, weight=1),)


def test_on_a_tcp_port_a_split_with_matches_does_nothing():
    """D7."""
    result = compiled("tcp", v1="tcp", matches=True)
    assert targets(result) == {"web": None}
    assert table(result).protocol is Protocol.TCP
    assert reasons(result) == [Reason.MATCH_NOT_APPLICABLE]
    assert result.report.outcomes == ()
