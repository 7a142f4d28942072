"""What is spoken on a Service port, and why (003; R61 to R67, D16). Client side and server side both ask here.

The first that says something decides: `appProtocol`, the beginning of the port's name, http. Kubernetes' own `protocol`
(TCP, UDP, SCTP) says nothing about it (R66).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.model.routing import Endpoints, PortRef, Protocol
from headgate.resources.core import ServicePort
from headgate.resources.meta import Key

_FILE = "service_names.txt"  # says where the names come from
_NAMED = {
    Protocol.HTTP: "http http1 grpc-web ws",
    Protocol.HTTP2: "http2 h2c grpc",
    Protocol.TCP: (
        "tcp redis mongo mongodb postgres postgresql kafka amqp mqtt ldap cassandra cql memcache memcached nats stomp "
        "zookeeper thrift xmpp-client irc rtsp sip dns tds ms-sql-s rdp kerberos"
    ),
    # Their servers send first: a proxy that waits for the client's first bytes would wait for ever.
    Protocol.TCP_SERVER_FIRST: "tcp-server-first mysql mariadb smtp ftp ssh sftp imap pop3 nntp vnc",
    Protocol.TLS: "tls https ssl wss ldaps imaps pop3s smtps submissions ftps amqps mqtts secure-mqtt rediss ircs",
}
_APP_ONLY = {
    Protocol.HTTP: "http/1.1 http-alt www www-http kubernetes.io/ws",
    Protocol.HTTP2: "http/2 kubernetes.io/h2c",
    Protocol.TCP: "oracle",
    Protocol.TCP_SERVER_FIRST: "submission telnet rfb rsync sieve daytime time qotd chargen pop2 mysqlx netconf-ssh",
    Protocol.TLS: "kubernetes.io/wss https-alt",
}


def _by_word(words: Mapping[Protocol, str]) -> dict[str, Protocol]:
    return {word: protocol for protocol, text in words.items() for word in text.split()}


def _registered() -> Iterator[tuple[str, Protocol]]:
    """Yield the service names of IANA's registry, which Kubernetes allows as `appProtocol` (D16), in lower case.

    Those of protocols over TLS are TLS, all others are TCP.
    """
    text = files("headgate.compiler").joinpath(_FILE).read_text(encoding="ascii")
    for name, *marks in (line.split() for line in text.splitlines() if not line.startswith("#")):
        yield name, Protocol.TLS if "tls" in marks else Protocol.TCP


NAMED: Mapping[str, Protocol] = MappingProxyType(_by_word(_NAMED))
"""What a port's name may be, or begin with before a `-`, in lower case."""
KNOWN: Mapping[str, Protocol] = MappingProxyType({**dict(_registered()), **_by_word(_APP_ONLY), **NAMED})
"""What `appProtocol` may be, in lower case."""
GRPC = "grpc"
"""As the whole name of a port it says little: 001 has such a port with any kind of application behind it. gRPC clients
speak HTTP/2 anyway, so calling the backend as the client calls is right for both."""


class ProtocolChoice(NamedTuple):
    """A port's protocol, and why in words that follow it: `tcp, because ...`.

    `declared` says whether the Service says it; a backend that says nothing takes what its root has.
    """

    protocol: Protocol
    why: str
    declared: bool


def protocol_of(port: ServicePort) -> ProtocolChoice:
    """Decide what is spoken on a Service port."""
    written = port.app_protocol
    if protocol := _app_protocol(port):
        return ProtocolChoice(protocol, f"because the port's appProtocol is {written}", declared=True)
    if written:
        return ProtocolChoice(
            Protocol.HTTP, f"because headgate does not know the appProtocol {written}", declared=False
        )
    if port.name.lower() == GRPC:
        why = "because the port's name is grpc; backends are called as clients call"
        return ProtocolChoice(Protocol.HTTP_ANY, why, declared=True)
    if word := _name_word(port.name):
        return ProtocolChoice(NAMED[word], f"because the port's name is {port.name}", declared=True)
    why = "because neither appProtocol nor the port's name says what it is"
    return ProtocolChoice(Protocol.HTTP, why, declared=False)


def choices(snapshot: Snapshot) -> Mapping[PortRef, ProtocolChoice]:
    """Decide what is spoken on every port that is routed."""
    return {
        PortRef(name, port.port): protocol_of(port)
        for name, (_, service) in snapshot.services.items()
        for port in routed_ports(service)
    }


def choice_at(snapshot: Snapshot, ref: PortRef) -> ProtocolChoice:
    """Decide what is spoken on one port that is routed."""
    _, service = snapshot.services[ref.service]
    return protocol_of(next(port for port in routed_ports(service) if port.port == ref.port))


def unknown(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield each unknown appProtocol."""
    for key, service in snapshot.services.values():
        known = {id(port) for port in routed_ports(service)}
        for index, port in enumerate(service.spec.ports):
            if id(port) in known and port.app_protocol and not _app_protocol(port):
                message = (
                    f"appProtocol {port.app_protocol} of port {port.port} is no protocol that headgate knows and no "
                    "service name of IANA's registry; the port counts as http. Write http, http2, grpc, tcp, "
                    "tcp-server-first, tls or a registered name"
                )
                yield Finding(key, Reason.UNKNOWN_PROTOCOL, f"spec.ports[{index}].appProtocol", message)


def _app_protocol(port: ServicePort) -> Protocol | None:
    return KNOWN.get(port.app_protocol.strip().lower())


def _name_word(name: str) -> str:
    """Return the longest known word that the name is, or begins with before a `-` (R62)."""
    parts = name.lower().split("-")
    return next((word for end in range(len(parts), 0, -1) if (word := "-".join(parts[:end])) in NAMED), "")


def conflicts(
    snapshot: Snapshot, known: Mapping[PortRef, ProtocolChoice], places: Iterable[Endpoints]
) -> tuple[Finding, ...]:
    """Return each Service that contradicts an older one about a port of a pod (R67)."""
    declared = {ref: choice.protocol for ref, choice in known.items() if choice.declared}
    if len(set(declared.values())) < 2:
        return ()
    by_place: dict[tuple[str, int], list[PortRef]] = defaultdict(list)
    for entry in places:
        for place in entry.ready if entry.ref in declared else ():
            if not place.resolved:
                by_place[place.address, place.port].append(entry.ref)
    found: dict[PortRef, Finding] = {}
    for refs in by_place.values():
        oldest = min(refs, key=lambda ref: _age(snapshot, ref))
        for ref in refs:
            if declared[ref] is not declared[oldest] and ref not in found:
                found[ref] = _conflict(snapshot, ref, oldest, declared)
    return tuple(found.values())


def _age(snapshot: Snapshot, ref: PortRef) -> tuple[str, Key, int]:
    key, service = snapshot.services[ref.service]
    return service.metadata.creation_timestamp, key, ref.port


def _conflict(snapshot: Snapshot, ref: PortRef, oldest: PortRef, declared: Mapping[PortRef, Protocol]) -> Finding:
    key, service = snapshot.services[ref.service]
    winner, _ = snapshot.services[oldest.service]
    index = next(index for index, port in enumerate(service.spec.ports) if port.port == ref.port)
    message = (
        f"port {ref.port} is {declared[ref].value} here, but port {oldest.port} of {winner}, which is older, declares "
        f"{declared[oldest].value} for the same port of the same pods. Clients of each Service get the protocol that it "
        f"declares; at the pods' sidecars, plaintext counts as {declared[oldest].value}. If the pods speak only one of the "
        "two, declare it in both Services"
    )
    return Finding(
        key,
        Reason.PROTOCOL_CONFLICT,
        f"spec.ports[{index}].appProtocol",
        message,
        related=() if winner == key else (winner,),
    )
