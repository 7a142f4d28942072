"""Filter chains of a sidecar's inbound side: who is taken in which tls_mode, and what becomes of him.

A client of the mesh shakes hands, proves who it is, and says by the server name which Service it means (D15). On ports that
are not HTTP it offers the protocol `headgate` besides: every other TLS there may be the application's own, and is passed
on like plaintext as long as plaintext is taken. Chains of one port are chosen by server name first, then by TLS or not,
then by what is offered; Envoy never goes back to a less special one.

A filter that asks who may connect is only asked when the client has sent something. A server that speaks first would have
spoken by then, so the handshake itself is refused to everybody else, and nothing is connected before it is done.
"""

from collections.abc import Iterable, Iterator, Sequence

from headgate.envoy import names, pb, rbac, tap, traffic_stats
from headgate.envoy.config_source import ads
from headgate.envoy.listeners import router_filter
from headgate.envoy.names import InboundRef
from headgate.envoy.upstream_tls import DENIED_HEADER, MESH_ALPN, UNREACHED_HEADER
from headgate.model.routing import Access, InboundPort, Spoken, TlsMode, server_name
from headgate.resources.meta import Value

HTTP_ALPN = ("h2", "http/1.1")
RBAC = "envoy.filters.http.rbac"
EARLY_BYTES = 1 << 16  # that a client may have sent when the application is reached; then it waits
PREFIX = "inbound"  # of statistics
_REFUSED = "headgate: access denied: no rule of this workload allows this request to %DOWNSTREAM_PEER_URI_SAN%\n"
_REFUSED_WITHOUT_MTLS = (
    "headgate: access denied: this workload wants to know who calls, and the request came without mutual TLS\n"
)
_UNREACHED = "headgate: the application does not accept connections on this port\n"


class InboundSettings(Value, frozen=True, kw_only=True):
    """What the chains of all ports of a workload have in common."""

    tls_mode: TlsMode
    access: Access
    domain: str
    trust_domain: str


def port_chains(side: InboundSettings, port: InboundPort, *, among_others: bool = False) -> Iterator[pb.FilterChain]:
    """Yield the chains of one port; `among_others` is for a listener that takes several."""
    for order, spoken in enumerate(port.spoken):
        meant = [server_name(ref, side.domain) for ref in spoken.services] if order else []
        if order and not meant:
            continue
        match = pb.FilterChainMatch(server_names=meant)
        if among_others:
            match.destination_port.CopyFrom(pb.UInt32Value(value=port.port))
        chains = _Chains(side, port, spoken, match)
        if side.tls_mode.accepts_tls:
            yield from chains.with_tls()
        if side.tls_mode.accepts_plaintext and not order:
            yield chains.plain()


def other_ports_chains(side: InboundSettings) -> Iterator[pb.FilterChain]:
    """Yield the chain of ports that no Service leads to. Nobody can say there who he is, so it is for open workloads."""
    if side.tls_mode.accepts_plaintext and not side.access.closed:
        yield pb.FilterChain(
            name="other",
            filters=[_tcp_proxy(names.OTHER_PORTS, traffic_stats.plaintext_connections(traffic_stats.OTHER_PORTS))],
        )


def closed_port_chain(port: int) -> pb.FilterChain:
    """Return the chain of a port to which nothing may be connected."""
    match = pb.FilterChainMatch(destination_port=pb.UInt32Value(value=port))
    return pb.FilterChain(name=f"{port}/closed", filter_chain_match=match, filters=[_tcp_proxy(names.MISSING)])


class _Chains:
    """The chains of what is spoken on a port."""

    def __init__(self, side: InboundSettings, port: InboundPort, spoken: Spoken, match: pb.FilterChainMatch) -> None:
        """`match` is what all of them have in common."""
        self._side = side
        self._port = port
        self._requests = spoken.protocol.is_http
        self._match = match
        self._name = f"{port.port}/{spoken.protocol.value}"
        self._cluster = names.inbound(InboundRef(port.port, spoken.protocol))

    def plain(self) -> pb.FilterChain:
        """Return the chain for plaintext."""
        chain = self._chain("plain", "raw_buffer")
        if self._requests:
            chain.filters.append(
                _http_connection_manager(
                    self._cluster, self._loggers(traffic_stats.plaintext_requests(str(self._port.port))), known=False
                )
            )
        else:
            chain.filters.extend(self._connections(logs=self._outsiders()))
        return chain

    def with_tls(self) -> Iterator[pb.FilterChain]:
        """Yield the chains for TLS: the mesh's, and where that can be something else, the application's own."""
        if self._requests:
            chain = self._chain("mesh", "tls")
            chain.filters.append(_http_connection_manager(self._cluster, self._loggers(), known=True))
            chain.transport_socket.CopyFrom(self._mutual(HTTP_ALPN, ()))
            yield chain
        else:
            yield self._of_mesh("mesh", (MESH_ALPN,))
            yield self._foreign() if self._side.tls_mode.accepts_plaintext else self._of_mesh("any", ())

    def _of_mesh(self, name: str, alpn: Sequence[str]) -> pb.FilterChain:
        access = self._side.access
        allowed = rbac.allowed_identities(access, self._port) if access.closed else ()
        chain = self._chain(name, "tls", alpn)
        chain.filters.extend(self._connections(allowed, known=True))
        chain.transport_socket.CopyFrom(self._mutual((MESH_ALPN,), allowed))
        return chain

    def _foreign(self) -> pb.FilterChain:
        chain = self._chain("passed", "tls")
        chain.filters.extend(self._connections(logs=self._outsiders()))
        return chain

    def _outsiders(self) -> list[pb.AccessLog]:
        """Return what counts those who come without the mesh's TLS: by a proxy of their own they would come with it."""
        return traffic_stats.plaintext_connections(str(self._port.port))

    def _loggers(self, counting: Iterable[pb.AccessLog] = ()) -> list[pb.AccessLog]:
        return [*counting, tap.server_logger(self._port.port)]

    def _chain(self, name: str, transport: str, alpn: Sequence[str] = ()) -> pb.FilterChain:
        match = pb.FilterChainMatch(transport_protocol=transport, application_protocols=alpn)
        match.MergeFrom(self._match)
        return pb.FilterChain(name=f"{self._name}/{name}", filter_chain_match=match)

    def _connections(
        self, allowed: tuple[str, ...] = (), logs: Iterable[pb.AccessLog] = (), *, known: bool = False
    ) -> Iterator[pb.Filter]:
        """Yield the filters for connections, which go nowhere when the workload is closed and none is `allowed`.

        These are counted as refused, not by `logs`.
        """
        access = self._side.access
        if access.closed:
            rules = rbac.connection_rules(access, self._port) if allowed else pb.RBAC()
            asked = pb.NetworkRbac(stat_prefix=f"{PREFIX}.{self._port.port}.", rules=rules)
            yield pb.Filter(name="envoy.filters.network.rbac", typed_config=pb.pack(asked))
        if access.closed and not allowed:
            yield _tcp_proxy(names.MISSING, traffic_stats.denied_connections(str(self._port.port)), known=known)
        else:
            yield _tcp_proxy(self._cluster, logs, known=known)

    def _mutual(self, alpn: Sequence[str], allowed: tuple[str, ...]) -> pb.TransportSocket:
        """Return the mesh's own TLS: both sides prove who they are. Nobody named in `allowed` is everybody of the mesh."""
        everybody = pb.StringMatcher(prefix=f"spiffe://{self._side.trust_domain}/")
        matchers = [pb.StringMatcher(exact=identity) for identity in allowed] or [everybody]
        uri = pb.SubjectAltNameMatcher.SanType.URI
        peers = [pb.SubjectAltNameMatcher(san_type=uri, matcher=matcher) for matcher in matchers]
        newest = pb.TlsParameters.TlsProtocol.TLSv1_3
        combined = pb.CommonTlsContext.CombinedCertificateValidationContext(
            default_validation_context=pb.CertificateValidationContext(match_typed_subject_alt_names=peers),
            validation_context_sds_secret_config=pb.SdsSecretConfig(name=names.ROOTS, sds_config=ads()),
        )
        context = pb.DownstreamTlsContext(
            require_client_certificate=pb.BoolValue(value=True),
            # Of a resumed session Envoy does not know that the client's certificate was verified, and so not who it is.
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


def _tcp_proxy(cluster: str, logs: Iterable[pb.AccessLog] = (), *, known: bool = False) -> pb.Filter:
    """Return the filter that passes bytes on; when it must be `known` who sends them, after the handshake."""
    proxy = pb.TcpProxy(stat_prefix=PREFIX, cluster=cluster, idle_timeout=pb.Duration(seconds=0))
    traffic_stats.log_connections(proxy, logs)
    if known:
        proxy.upstream_connect_mode = pb.UpstreamConnectMode.ON_DOWNSTREAM_TLS_HANDSHAKE
        proxy.max_early_data_bytes.CopyFrom(pb.UInt32Value(value=EARLY_BYTES))
    return pb.Filter(name="envoy.filters.network.tcp_proxy", typed_config=pb.pack(proxy))


def _http_connection_manager(name: str, logs: Iterable[pb.AccessLog], *, known: bool) -> pb.Filter:
    """Return the filter that reads requests. By itself it refuses them all; the routes say which are allowed."""
    manager = pb.HttpConnectionManager
    forward, details = manager.ForwardClientCertDetails.SANITIZE, None
    if known:
        forward, details = manager.ForwardClientCertDetails.SANITIZE_SET, manager.SetCurrentClientCertDetails(uri=True)
    nothing = pb.HttpRbac(rules=pb.RBAC(action=pb.RBAC.Action.ALLOW))
    connection = manager(
        stat_prefix=PREFIX,
        codec_type=manager.CodecType.AUTO,
        rds=pb.Rds(route_config_name=name, config_source=ads()),
        http_filters=[
            pb.HttpFilter(name=RBAC, typed_config=pb.pack(nothing)),
            router_filter(),
        ],
        http_protocol_options=pb.Http1ProtocolOptions(accept_http_10=True),
        upgrade_configs=[manager.UpgradeConfig(upgrade_type="websocket")],
        server_header_transformation=manager.ServerHeaderTransformation.PASS_THROUGH,
        generate_request_id=pb.BoolValue(value=False),
        stream_idle_timeout=pb.Duration(seconds=0),
        forward_client_cert_details=forward,
        set_current_client_cert_details=details,
        local_reply_config=_replies(_REFUSED if known else _REFUSED_WITHOUT_MTLS),
        access_log=logs,
    )
    return pb.Filter(name="envoy.filters.network.http_connection_manager", typed_config=pb.pack(connection))


def _replies(refused: str) -> pb.LocalReplyConfig:
    return pb.LocalReplyConfig(
        mappers=[
            pb.ResponseMapper(
                # not the status alone: an upgrade that is not known is answered with 403 too
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
