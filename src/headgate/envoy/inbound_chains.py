"""Filter chains of a sidecar's inbound side: which connections each TLS mode accepts, and which filters handle them.

A client of the mesh proves its identity in the handshake and names the Service by SNI (D15). On ports that are not
HTTP it also offers the ALPN protocol `headgate`. All other TLS on these ports may be the application's own, so it is
passed through, if plaintext is accepted too. Envoy selects a chain by SNI first, then by transport protocol, then by
ALPN. It never falls back to a less specific chain.

Envoy connects to the application only after the handshake, and on ports that are not HTTP only for allowed identities
(`inbound_connections`): a server that speaks first sends nothing to other clients.
"""

from collections.abc import Iterable, Iterator, Sequence

from headgate.envoy import inbound_connections, names, pb, rbac, tap, traffic_stats
from headgate.envoy.config_source import ads
from headgate.envoy.http_connections import ALPN, HANDSHAKE_MS, connection_manager
from headgate.envoy.inbound_connections import PREFIX, forward
from headgate.envoy.listeners import router_filter
from headgate.envoy.names import InboundRef
from headgate.envoy.reserved_headers import remove_reserved
from headgate.envoy.traces import SpanResource, trace_requests
from headgate.envoy.unrouted import second_attempt
from headgate.envoy.upstream_tls import DENIED_HEADER, MESH_ALPN, UNREACHED_HEADER
from headgate.envoy.values import duration
from headgate.model.access import ANY_CALLER, Access
from headgate.model.authorities import server_name
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import InboundPort, PortProtocol
from headgate.resources.meta import Value

_REFUSED = "headgate: access denied: no rule of this workload allows this request from %DOWNSTREAM_PEER_URI_SAN%\n"
_REFUSED_WITHOUT_MTLS = "headgate: access denied: this workload requires mutual TLS, and the request came without it\n"
_UNREACHED = "headgate: the application does not accept connections on this port\n"


class InboundSettings(Value, frozen=True, kw_only=True):
    """The settings that the filter chains of a workload share.

    `redirected` says whether the pod's connections are redirected to the sidecar.
    """

    tls_mode: TlsMode
    access: Access
    domain: str
    trust_domain: str
    redirected: bool = False
    traces: SpanResource | None = None


def port_chains(settings: InboundSettings, port: InboundPort, *, match_port: bool = False) -> Iterator[pb.FilterChain]:
    """Yield the filter chains of one port; set `match_port` for a listener that serves several ports."""
    for order, port_protocol in enumerate(port.protocols):
        meant = [server_name(ref, settings.domain) for ref in port_protocol.services] if order else []
        if order and not meant:
            continue
        match = pb.FilterChainMatch(server_names=meant)
        if match_port:
            match.destination_port.CopyFrom(pb.UInt32Value(value=port.port))
        chains = _Chains(settings, port, port_protocol, match)
        if settings.tls_mode.accepts_tls:
            yield from chains.with_tls()
        if settings.tls_mode.accepts_plaintext and not order:
            yield chains.plain()


def other_ports_chains(settings: InboundSettings) -> Iterator[pb.FilterChain]:
    """Yield the chain of the pod's ports that belong to no Service.

    Clients prove no identity there, so only open workloads that accept plaintext have this chain.
    """
    if settings.tls_mode.accepts_plaintext and not settings.access.closed:
        yield pb.FilterChain(
            name="other",
            filters=[forward(names.OTHER_PORTS, traffic_stats.plaintext_connections(traffic_stats.OTHER_PORTS))],
        )


def closed_port_chain(port: int) -> pb.FilterChain:
    """Return the chain that closes all connections to a port."""
    match = pb.FilterChainMatch(destination_port=pb.UInt32Value(value=port))
    return pb.FilterChain(name=f"{port}/closed", filter_chain_match=match, filters=[forward(names.MISSING)])


class _Chains:
    """The filter chains of one protocol on a port."""

    def __init__(
        self, settings: InboundSettings, port: InboundPort, port_protocol: PortProtocol, match: pb.FilterChainMatch
    ) -> None:
        """Prepare the chains; the matches of all chains contain `match`."""
        self._settings = settings
        self._port = port
        self._requests = port_protocol.protocol.is_http
        self._match = match
        self._name = f"{port.port}/{port_protocol.protocol.value}"
        self._ref = InboundRef(port.port, port_protocol.protocol)

    def plain(self) -> pb.FilterChain:
        """Return the chain for plaintext."""
        chain = self._chain("plain", "raw_buffer")
        if self._requests:
            chain.filters.append(
                _http_connection_manager(
                    names.inbound(self._ref),
                    self._loggers(traffic_stats.plaintext_requests(str(self._port.port))),
                    authenticated=False,
                    traces=self._settings.traces,
                )
            )
        else:
            chain.filters.append(self._unauthenticated())
        return chain

    def with_tls(self) -> Iterator[pb.FilterChain]:
        """Yield the chain for mTLS and, on ports that are not HTTP, the chain for other TLS."""
        if self._requests:
            chain = self._chain("mesh", "tls")
            chain.filters.append(
                _http_connection_manager(
                    names.inbound(self._ref), self._loggers(), authenticated=True, traces=self._settings.traces
                )
            )
            yield self._authenticating(chain, ALPN)
        else:
            yield self._mesh_tls("mesh", (MESH_ALPN,))
            yield self._application_tls() if self._settings.tls_mode.accepts_plaintext else self._mesh_tls("any", ())

    def _mesh_tls(self, name: str, alpn: Sequence[str]) -> pb.FilterChain:
        """Return the chain for mTLS. It has no access rules, as its connections end when it changes."""
        chain = self._chain(name, "tls", alpn)
        if self._settings.access.closed:
            chain.filters.append(inbound_connections.hand_over(redirected=self._settings.redirected))
            chain.filters.append(forward(names.callers(self._ref), authenticated=True))
        else:
            chain.filters.append(forward(names.inbound(self._ref), authenticated=True))
        return self._authenticating(chain, (MESH_ALPN,))

    def _authenticating(self, chain: pb.FilterChain, alpn: Sequence[str]) -> pb.FilterChain:
        chain.transport_socket.CopyFrom(self._mutual(alpn))
        chain.transport_socket_connect_timeout.CopyFrom(duration(HANDSHAKE_MS))
        return chain

    def _application_tls(self) -> pb.FilterChain:
        chain = self._chain("passed", "tls")
        chain.filters.append(self._unauthenticated())
        return chain

    def _loggers(self, counting: Iterable[pb.AccessLog] = ()) -> list[pb.AccessLog]:
        return [*counting, tap.server_logger(self._port.port)]

    def _chain(self, name: str, transport: str, alpn: Sequence[str] = ()) -> pb.FilterChain:
        match = pb.FilterChainMatch(transport_protocol=transport, application_protocols=alpn)
        match.MergeFrom(self._match)
        return pb.FilterChain(name=f"{self._name}/{name}", filter_chain_match=match)

    def _unauthenticated(self) -> pb.Filter:
        """Return the filter of connections without mTLS; only a rule for all callers of a closed workload allows them.

        The server's proxy counts them. Connections with mTLS are counted by the client's proxy.
        """
        port = str(self._port.port)
        access = self._settings.access
        if access.closed and ANY_CALLER not in rbac.allowed_sources(access, self._port):
            return forward(names.MISSING, traffic_stats.denied_connections(port))
        return forward(names.inbound(self._ref), traffic_stats.plaintext_connections(port))

    def _mutual(self, alpn: Sequence[str]) -> pb.TransportSocket:
        """Return the socket for mTLS with the identities of the trust domain."""
        trust_domain = pb.StringMatcher(prefix=f"spiffe://{self._settings.trust_domain}/")
        peer = pb.SubjectAltNameMatcher(san_type=pb.SubjectAltNameMatcher.SanType.URI, matcher=trust_domain)
        newest = pb.TlsParameters.TlsProtocol.TLSv1_3
        combined = pb.CommonTlsContext.CombinedCertificateValidationContext(
            default_validation_context=pb.CertificateValidationContext(match_typed_subject_alt_names=[peer]),
            validation_context_sds_secret_config=pb.SdsSecretConfig(name=names.ROOTS, sds_config=ads()),
        )
        context = pb.DownstreamTlsContext(
            require_client_certificate=pb.BoolValue(value=True),
            # In a resumed session Envoy has no verified client certificate, and so no identity.
            disable_stateless_session_resumption=True,
            disable_stateful_session_resumption=True,
            common_tls_context=pb.CommonTlsContext(
                tls_params=pb.TlsParameters(tls_minimum_protocol_version=newest, tls_maximum_protocol_version=newest),
                tls_certificate_sds_secret_configs=[pb.SdsSecretConfig(name=names.IDENTITY, sds_config=ads())],
                combined_validation_context=combined,
                alpn_protocols=alpn,
            ),
        )
        return pb.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pb.pack(context))


def _http_connection_manager(
    name: str, logs: Iterable[pb.AccessLog], *, authenticated: bool, traces: SpanResource | None
) -> pb.Filter:
    """Return the HTTP connection manager. Its RBAC filter denies all requests unless the route allows them."""
    manager = pb.HttpConnectionManager
    forward, details = manager.ForwardClientCertDetails.SANITIZE, None
    if authenticated:
        forward, details = manager.ForwardClientCertDetails.SANITIZE_SET, manager.SetCurrentClientCertDetails(uri=True)
    nothing = pb.HttpRbac(rules=pb.RBAC(action=pb.RBAC.Action.ALLOW))
    connection = connection_manager(
        prefix=PREFIX,
        routes=pb.Rds(route_config_name=name, config_source=ads()),
        filters=[*second_attempt(), pb.HttpFilter(name=tap.RBAC, typed_config=pb.pack(nothing))],
        router=router_filter(),
        logs=logs,
        replies=_replies(_REFUSED if authenticated else _REFUSED_WITHOUT_MTLS),
    )
    if traces:
        trace_requests(connection, traces, inbound=True)
    connection.forward_client_cert_details = forward
    if details:
        connection.set_current_client_cert_details.CopyFrom(details)
    remove_reserved(connection)
    return pb.Filter(name="envoy.filters.network.http_connection_manager", typed_config=pb.pack(connection))


def _replies(refused: str) -> pb.LocalReplyConfig:
    return pb.LocalReplyConfig(
        mappers=[
            pb.ResponseMapper(
                # A filter by status 403 would also match Envoy's answer to an unknown upgrade.
                filter=traffic_stats.cel_filter('response.code_details.startsWith("rbac_access_denied")'),
                body_format_override=_text(refused),
                headers_to_add=[_header(DENIED_HEADER)],
            ),
            pb.ResponseMapper(
                filter=pb.AccessLogFilter(response_flag_filter=pb.ResponseFlagFilter(flags=["UF"])),
                body_format_override=_text(_UNREACHED),
                headers_to_add=[_header(UNREACHED_HEADER)],
            ),
        ]
    )


def _header(name: str) -> pb.HeaderValueOption:
    return pb.HeaderValueOption(header=pb.HeaderValue(key=name, value="true"))


def _text(line: str) -> pb.SubstitutionFormatString:
    return pb.SubstitutionFormatString(text_format_source=pb.DataSource(inline_string=line))
