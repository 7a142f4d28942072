"""Choose the protocol of each Service port, with the reason (003; R61 to R67, D16).

The proxies of clients and servers use the same protocol. `appProtocol` is used first, then the prefix of the port's
name, such as `grpc-api`; the default is http. The `protocol` field of Kubernetes (TCP, UDP, SCTP) has no influence
(R66).
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
from headgate.resources.core.service import ServicePort
from headgate.resources.meta import Key

_FILE = "service_names.txt"  # a list of service names; its first lines name the source
_NAMED = {
    Protocol.HTTP: "http http1 grpc-web ws",
    Protocol.HTTP2: "http2 h2c grpc",
    Protocol.TCP: (
        "tcp redis mongo mongodb postgres postgresql kafka amqp mqtt ldap cassandra cql memcache memcached nats stomp "
        "zookeeper thrift xmpp-client irc rtsp sip dns tds ms-sql-s rdp kerberos"
    ),
    # Servers of these protocols send first, so a proxy that waits for the client's first bytes would wait forever.
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
    """Yield the service names of IANA's registry in lower case; Kubernetes allows them as `appProtocol` (D16).

    Names of protocols over TLS mean TLS; all remaining names mean TCP.
    """
    text = files("headgate.compiler").joinpath(_FILE).read_text(encoding="ascii")
    for name, *marks in (line.split() for line in text.splitlines() if not line.startswith("#")):
        yield name, Protocol.TLS if "tls" in marks else Protocol.TCP


NAMED: Mapping[str, Protocol] = MappingProxyType(_by_word(_NAMED))
"""Protocols by port name, or by its part before a `-`; keys are in lower case."""
KNOWN: Mapping[str, Protocol] = MappingProxyType({**dict(_registered()), **_by_word(_APP_ONLY), **NAMED})
"""Protocols by `appProtocol`, in lower case."""
GRPC = "grpc"
"""The protocol of a port named `grpc`. Its application may speak any HTTP version (001), so proxies call it with the
HTTP version of the client. This is safe for gRPC, because its clients use HTTP/2."""


class ProtocolChoice(NamedTuple):
    """The protocol of a port, and the reason as a clause (`because ...`).

    `declared` says whether the Service declares the protocol; a backend without a declaration uses the protocol of its
    root.
    """

    protocol: Protocol
    why: str
    declared: bool


def protocol_of(port: ServicePort) -> ProtocolChoice:
    """Choose the protocol of a Service port."""
    written = port.app_protocol
    if protocol := _app_protocol(port):
        return ProtocolChoice(protocol, f"because the port's appProtocol is {written}", declared=True)
    if written:
        return ProtocolChoice(
            Protocol.HTTP, f"because headgate does not know the appProtocol {written}", declared=False
        )
    if port.name.lower() == GRPC:
        why = "because the port's name is grpc (backends get the HTTP version of the client)"
        return ProtocolChoice(Protocol.HTTP_ANY, why, declared=True)
    if word := _name_word(port.name):
        return ProtocolChoice(NAMED[word], f"because the port's name is {port.name}", declared=True)
    why = "because neither appProtocol nor the port's name declares a protocol"
    return ProtocolChoice(Protocol.HTTP, why, declared=False)


def choices(snapshot: Snapshot) -> Mapping[PortRef, ProtocolChoice]:
    """Choose the protocol of every routed port."""
    return {
        PortRef(name, port.port): protocol_of(port)
        for name, (_, service) in snapshot.services.items()
        for port in routed_ports(service)
    }


def choice_at(snapshot: Snapshot, ref: PortRef) -> ProtocolChoice:
    """Choose the protocol of one routed port."""
    _, service = snapshot.services[ref.service]
    return protocol_of(next(port for port in routed_ports(service) if port.port == ref.port))


def unknown(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each unknown appProtocol."""
    for key, service in snapshot.services.values():
        routed = {id(port) for port in routed_ports(service)}
        for index, port in enumerate(service.spec.ports):
            if id(port) in routed and port.app_protocol and not _app_protocol(port):
                message = (
                    f"appProtocol {port.app_protocol} of port {port.port} is unknown (and not an IANA service name), so headgate "
                    "treats the port as http. Write http, http2, grpc, tcp, tcp-server-first, tls or an IANA name"
                )
                yield Finding(key, Reason.UNKNOWN_PROTOCOL, f"spec.ports[{index}].appProtocol", message)


def _app_protocol(port: ServicePort) -> Protocol | None:
    return KNOWN.get(port.app_protocol.strip().lower())


def _name_word(name: str) -> str:
    """Return the longest known word that is a port's name or begins it before a `-` (R62); empty if there is none."""
    parts = name.lower().split("-")
    return next((word for end in range(len(parts), 0, -1) if (word := "-".join(parts[:end])) in NAMED), "")


def conflicts(
    snapshot: Snapshot, choices: Mapping[PortRef, ProtocolChoice], places: Iterable[Endpoints]
) -> tuple[Finding, ...]:
    """Return a finding for each Service that declares another protocol for a pod's port than an older Service (R67)."""
    declared = {ref: choice.protocol for ref, choice in choices.items() if choice.declared}
    if len(set(declared.values())) < 2:
        return ()
    by_place: dict[tuple[str, int], list[PortRef]] = defaultdict(list)
    for entry in places:
        for place in entry.ready if entry.ref in declared else ():
            if not place.resolved:
                by_place[place.address, place.port].append(entry.ref)
    findings: dict[PortRef, Finding] = {}
    for refs in by_place.values():
        oldest = min(refs, key=lambda ref: _age(snapshot, ref))
        for ref in refs:
            if declared[ref] is not declared[oldest] and ref not in findings:
                findings[ref] = _conflict(snapshot, ref, oldest, declared)
    return tuple(findings.values())


def _age(snapshot: Snapshot, ref: PortRef) -> tuple[str, Key, int]:
    key, service = snapshot.services[ref.service]
    return service.metadata.creation_timestamp, key, ref.port


def _conflict(snapshot: Snapshot, ref: PortRef, oldest: PortRef, declared: Mapping[PortRef, Protocol]) -> Finding:
    key, service = snapshot.services[ref.service]
    winner, _ = snapshot.services[oldest.service]
    index = next(index for index, port in enumerate(service.spec.ports) if port.port == ref.port)
    message = (
        f"port {ref.port} is {declared[ref].value}, but port {oldest.port} of the older {winner} is "
        f"{declared[oldest].value} and leads to the same port of the same pods. Clients use the protocol of the Service "
        f"that they call; the pods' sidecars treat plaintext as {declared[oldest].value}. If the pods speak only one of "
        "the two, declare it in both Services"
    )
    return Finding(
        key,
        Reason.PROTOCOL_CONFLICT,
        f"spec.ports[{index}].appProtocol",
        message,
        related=() if winner == key else (winner,),
    )
