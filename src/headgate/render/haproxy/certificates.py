"""Certificates of Gateway ports as files, and the list by which HAProxy selects one by the client's SNI."""

from collections.abc import Iterator, Mapping

from headgate.model.edge_tls import ListenerCertificate
from headgate.model.identities import PrivateText
from headgate.render.haproxy.words import name_of, port_name
from headgate.render.proxy_ports import ANY_HOST, ProxyPort

DIRECTORY = "tls"
_ALPN = "[alpn h2,http/1.1]"
_NO_NAME = "default.invalid"


def files(port: ProxyPort) -> Iterator[tuple[str, str | PrivateText]]:
    """Yield the files of a port by path: each certificate with its key, and the list."""
    for _, certificate in port.tls:
        text = f"{certificate.chain.rstrip()}\n{certificate.key.reveal().rstrip()}\n"
        yield _path(certificate), PrivateText(text)
    if port.tls and port.client_certificates:
        yield _authorities_path(port), port.client_certificates.authorities
    if port.tls:
        yield _list_path(port), "".join(f"{line}\n" for line in _list(port))


def bind_options(port: ProxyPort) -> str:
    """Return the TLS options of a `bind` line; empty for a port without TLS.

    If all listeners have full names, HAProxy itself closes connections for other names. A wildcard of HAProxy matches
    one label only, so a port with a wildcard accepts every name, and its rules reject requests for other names.
    """
    if not port.tls:
        return ""
    strict = not any(name.startswith(ANY_HOST) for name, _ in port.tls)
    return f" ssl crt-list {_list_path(port)}{' strict-sni' if strict else ''}{_client_options(port)}"


def _client_options(port: ProxyPort) -> str:
    """Return the options for the certificates of clients. Without tickets, each connection presents one, as with Envoy."""
    if port.client_certificates is None:
        return ""
    word = "optional ca-ignore-err all crt-ignore-err all" if port.client_certificates.optional else "required"
    return f" ca-file {_authorities_path(port)} verify {word} no-tls-tickets"


def _list(port: ProxyPort) -> Iterator[str]:
    """Yield the lines of the list. The certificate of the widest wildcard comes first: it is the default."""
    widest = sorted((name for name, _ in port.tls if name.startswith(ANY_HOST)), key=len)
    by_name: Mapping[str, ListenerCertificate] = dict(reversed(port.tls))
    for name in widest[:1]:
        yield f"{_path(by_name[name])} {_ALPN} {_NO_NAME}"
    for name, certificate in port.tls:
        if name != ANY_HOST:
            yield f"{_path(certificate)} {_ALPN} {name}"


def _path(certificate: ListenerCertificate) -> str:
    return f"{DIRECTORY}/{name_of(certificate.secret.replace('/', '.'))}.pem"


def _authorities_path(port: ProxyPort) -> str:
    return f"{DIRECTORY}/{port_name(port)}.authorities.pem"


def _list_path(port: ProxyPort) -> str:
    return f"{DIRECTORY}/{port_name(port)}.list"
