"""The servers of HTTP ports: one for each host, and the definitions that all of them use."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.model.edge_tls import ListenerCertificate
from headgate.model.evaluate import MISDIRECTED
from headgate.model.host_names import best_name
from headgate.model.identities import PrivateText
from headgate.model.routing import Protocol
from headgate.model.sanitizing import NOT_FOUND
from headgate.render.nginx.conditions import AUTHORITY, PATH, SCHEME, TE, UPGRADE
from headgate.render.nginx.headers import CONNECTION, IGNORED, PASSED, base, request_directives
from headgate.render.nginx.locations import HostLocations, Output
from headgate.render.nginx.streams import listen
from headgate.render.nginx.syntax import Variables, block, pattern, template
from headgate.render.omissions import OmissionReason, Place
from headgate.render.proxy_ports import ANY_HOST, PortHost, ProxyPort, Selection

FAILED = "$headgate_failed"
_DEPTH = 100  # the longest chain of a client's certificate, as with Envoy
_LISTED = r"(?:\A|,)[ \t]*{}[ \t]*(?:,|\z)"
_SETTINGS = (
    "access_log off;",
    "client_body_temp_path client_body_temp;",
    "proxy_temp_path proxy_temp;",
    "fastcgi_temp_path fastcgi_temp;",
    "uwsgi_temp_path uwsgi_temp;",
    "scgi_temp_path scgi_temp;",
    "variables_hash_max_size 65536;",
    "variables_hash_bucket_size 128;",
    "server_names_hash_max_size 65536;",
    "server_names_hash_bucket_size 512;",
    "proxy_headers_hash_max_size 4096;",
    "proxy_headers_hash_bucket_size 128;",
    "server_tokens off;",
    "recursive_error_pages on;",
    "underscores_in_headers on;",
    "large_client_header_buffers 4 64k;",
    "client_max_body_size 0;",
    "client_body_timeout 365d;",
    "send_timeout 365d;",
    "proxy_http_version 1.1;",
    "proxy_request_buffering off;",
    "proxy_buffering off;",
    "proxy_buffer_size 64k;",
    "proxy_buffers 8 64k;",
    "proxy_busy_buffers_size 64k;",
    "proxy_redirect off;",
    f"proxy_ignore_headers {IGNORED};",
)
_OF_GRPC = ("grpc_buffer_size 64k;", "grpc_ignore_headers X-Accel-Charset X-Accel-Redirect;")
_OF_BACKENDS = ("connect_timeout 5s;", "read_timeout 365d;", "send_timeout 365d;", "next_upstream off;")


def settings(servers: Sequence[str]) -> Iterator[str]:
    """Yield the settings of all servers: nginx forwards messages as they come, and never retries a request."""
    yield from _SETTINGS
    if "grpc" in modules(servers):
        yield from _OF_GRPC
    for module in modules(servers):
        yield from (f"{module}_{setting}" for setting in _OF_BACKENDS)
        yield from (f"{module}_pass_header {name};" for name in PASSED)
        yield from request_directives(module, base(edge=False))


def modules(lines: Sequence[str]) -> Sequence[str]:
    """Return the modules that send the requests of these lines to backends."""
    return [module for module in ("proxy", "grpc") if any(f" {module}_pass " in line for line in lines)]


def definitions() -> Iterator[str]:
    """Yield the variables with the parts of a request as routes see them (model/sanitizing.py)."""
    requested = "$headgate_upgrade_requested"
    maps: tuple[tuple[str, str, tuple[tuple[str, str], ...], str], ...] = (
        (PATH, "$request_uri", ((pattern(r"\A(?<headgate_rest>[^?]*)"), "$headgate_rest"),), '""'),
        (
            AUTHORITY,
            "$request",
            ((_insensitive(r"\A\S+ https?://(?<headgate_rest>[^/? ]+)"), "$headgate_rest"),),
            "$http_host",
        ),
        (requested, "$http_connection", ((_insensitive(_LISTED.format("upgrade")), "$http_upgrade"),), '""'),
        (
            UPGRADE,
            requested,
            ((_insensitive(r"\Awebsocket\z"), requested), (_insensitive(_LISTED.format("websocket")), "websocket")),
            '""',
        ),
        (CONNECTION, UPGRADE, (('""', '""'),), "upgrade"),
        ("$headgate_upgrade_connection", UPGRADE, (('""', '""'),), "$http_connection"),
        (TE, "$http_te", ((pattern(_LISTED.format("trailers")), "trailers"),), '""'),
        ("$headgate_expect", "$http_expect", ((_insensitive(r"\A100-continue\z"), '""'),), "$http_expect"),
        (SCHEME, "$http_x_forwarded_proto", (('""', "$scheme"),), "$http_x_forwarded_proto"),
        (
            FAILED,
            "$upstream_addr",
            ((pattern(r"/dev/null/(?<headgate_rest>\d+)\z"), '"@status-$headgate_rest"'),),
            "@status-503",
        ),
    )
    for name, source, entries, default in maps:
        lines = [f"{key} {value};" for key, value in entries]
        yield from block(f"map {template(source)} {name}", [*lines, f"default {default};"])


def _insensitive(regex: str) -> str:
    return template(f"~*{regex}")


class Servers:
    """Renders the servers of one port; `certificates` gets the files of certificates and keys."""

    def __init__(
        self, port: ProxyPort, selection: Selection, output: Output, certificates: dict[str, str | PrivateText]
    ) -> None:
        self._port = port
        self._selection = selection
        self._output = output
        self._files = certificates
        self._tls: Mapping[str, tuple[ListenerCertificate, ...]] = {
            name: tuple(certificate for other, certificate in port.tls if other == name) for name, _ in port.tls
        }

    def lines(self) -> Iterator[str]:
        """Yield the servers; the first receives the requests for unknown hosts."""
        if self._port.protocol is Protocol.HTTP2 and not self._tls:
            message = "nginx accepts only HTTP/2 on a port without TLS that accepts HTTP/2"
            place = Place(self._port.owner, self._port.where)
            self._output.collector.add(place, "clients with HTTP/1.1", OmissionReason.CLIENT_PROTOCOL, message)
        if not any(ANY_HOST in host.names for host in self._port.hosts):
            yield from block("server", self._unknown())
        for index, host in enumerate(self._port.hosts):
            yield from block(
                "server", self._server(host, f"{self._port.port}_{index}" if index else f"{self._port.port}")
            )
        for name in self._tls.keys() - {ANY_HOST} - {name for host in self._port.hosts for name in host.names}:
            certificate = self._certificates(self._tls[name])
            yield from block("server", [*self._listen(), f"server_name {name};", *certificate, f"return {NOT_FOUND};"])

    def _unknown(self) -> Iterator[str]:
        """Yield the server for hosts without routes; a TLS connection to an unknown name is refused."""
        yield from self._listen(" default_server")
        yield "server_name _;"
        if self._tls and ANY_HOST not in self._tls:
            yield "ssl_reject_handshake on;"
        elif self._tls:
            yield from self._certificates(self._tls[ANY_HOST])
        yield f"return {NOT_FOUND};"

    def _server(self, host: PortHost, tag: str) -> Iterator[str]:
        is_default = ANY_HOST in host.names
        yield from self._listen(" default_server" if is_default else "")
        yield f"server_name {' '.join(name for name in host.names if name != ANY_HOST) or '_'};"
        if self._tls:
            listener = best_name(self._tls, host.names[0])
            if listener:
                yield from self._certificates(self._tls[listener])
            yield f"if ({self._listener_name()} != {template(host.listener)}) {{ return {MISDIRECTED}; }}"
        yield f"error_page 502 = {FAILED};"
        locations = list(HostLocations(self._selection, self._port, host, self._output, tag).lines())
        for module in modules(locations) if host.edge else ():
            yield from request_directives(module, base(edge=True))
        yield from locations

    def _listen(self, more: str = "") -> Iterator[str]:
        tls, http2 = " ssl" if self._tls else "", " http2" if self._tls or self._port.protocol is Protocol.HTTP2 else ""
        yield f"listen {listen(self._port)}{tls}{http2}{more};"

    def _certificates(self, certificates: Iterable[ListenerCertificate]) -> Iterator[str]:
        for certificate in certificates:
            stem = f"tls/{certificate.secret.replace('/', '.')}"
            self._files |= {f"{stem}.crt": certificate.chain, f"{stem}.key": certificate.key}
            yield f"ssl_certificate {stem}.crt;"
            yield f"ssl_certificate_key {stem}.key;"
        yield from self._clients()

    def _clients(self) -> Iterator[str]:
        """Yield the directives for the certificates of clients. Without tickets, each connection presents one, as with Envoy."""
        clients = self._port.client_certificates
        if clients is None:
            return
        path = f"tls/{self._port.owner.namespace}.{self._port.owner.name}.{self._port.port}.authorities.crt"
        self._files[path] = clients.authorities
        yield f"ssl_client_certificate {path};"
        yield f"ssl_verify_client {'optional_no_ca' if clients.optional else 'on'};"
        yield f"ssl_verify_depth {_DEPTH};"
        yield "ssl_session_tickets off;"

    def _listener_name(self) -> str:
        """Return the variable with the hostname of the listener that the client's SNI selects."""
        names = [(name, template(name)) for name in self._tls if name != ANY_HOST]
        default = template(ANY_HOST) if ANY_HOST in self._tls else '""'
        return hostnames(self._output.variables, names, default)


def hostnames(variables: Variables, names: list[tuple[str, str]], default: str) -> str:
    """Return the variable with the value of the most specific name, possibly a wildcard, that the SNI matches."""
    return variables.mapped("listener", "$ssl_server_name", [("hostnames", ""), *names], default)
