"""Upstream TLS: which identity an endpoint must prove, to a proxy (R74, R76), or to a Gateway with a policy (GEP-1897).

An endpoint or its locality names its peer in metadata, and its cluster has a transport socket for each peer. If the
cluster has no socket for a peer, it uses the TLS of its first peer. So a partial update may fail a request, but never sends
it in plaintext. Plaintext is used only for endpoints whose metadata selects plaintext.
"""

from collections.abc import Collection, Iterator
from typing import TypeAlias

from headgate.envoy import names, pb
from headgate.envoy.config_source import ads
from headgate.model.edge_tls import AltName, BackendTls
from headgate.resources.meta import Value

MATCH_METADATA = "envoy.transport_socket_match"  # the key of endpoint metadata that Envoy reads
PEER_FIELD = "headgate"
PLAINTEXT = "plaintext"
MESH_ALPN = "headgate"  # distinguishes mTLS from the application's own TLS on ports that are not HTTP
UNREACHED_HEADER = "x-headgate-unreached"
"""A response header of the server's proxy: the application has not received the request, so the caller's proxy
may retry."""
DENIED_HEADER = "x-headgate-denied"
"""A response header of the server's proxy: access rules denied the request. The caller's proxy counts it
separately."""
AUDITED = "audit"
"""The value of `DENIED_HEADER` for an allowed request that access rules would deny without audit mode."""
_TLS, _RAW = "tls", "raw"  # short, as each cluster repeats them; Envoy identifies both by their type


class ExpectedPeer(Value, frozen=True, kw_only=True, order=True):
    """The identity (SPIFFE ID) that an endpoint must prove, and the SNI that names the Service port.

    `opaque`: the port is not HTTP.
    """

    identity: str
    server_name: str
    opaque: bool = False

    @property
    def key(self) -> str:
        """The key of the peer in endpoint metadata."""
        return f"{self.server_name} {self.identity}"


Peer: TypeAlias = ExpectedPeer | BackendTls
"""A proxy of the mesh, or a server outside its mutual TLS that a Gateway calls by a policy."""


def peer_key(peer: Peer) -> str:
    """Return the key of a peer in endpoint metadata; two policies differ, even with the same hostname and roots."""
    if isinstance(peer, ExpectedPeer):
        return peer.key
    return f"{peer.hostname} {peer.origin.namespace}/{peer.origin.name}"


def are_proxies(peers: Collection[Peer]) -> bool:
    """Return whether endpoints are called through their proxies, by mutual TLS of the mesh."""
    return any(isinstance(peer, ExpectedPeer) for peer in peers)


def peer_metadata(peer: Peer | None) -> pb.Struct:
    """Return the metadata that selects the transport socket of a peer; plaintext for None."""
    return pb.Struct(fields={PEER_FIELD: pb.Value(string_value=peer_key(peer) if peer else PLAINTEXT)})


def add_transport_sockets(cluster: pb.Cluster, peers: tuple[Peer, ...]) -> None:
    """Add a transport socket for each peer to a cluster, and one for endpoints in plaintext.

    The socket of the first peer is the cluster's default. It needs no match of its own, which saves 16 KiB per
    cluster.
    """
    cluster.transport_socket_matches.extend(_matches(peers))
    cluster.transport_socket.CopyFrom(transport_socket(peers[0]))


def _matches(peers: tuple[Peer, ...]) -> Iterator[pb.Cluster.TransportSocketMatch]:
    for peer in peers[1:]:
        yield pb.Cluster.TransportSocketMatch(
            name=peer_key(peer), match=peer_metadata(peer), transport_socket=transport_socket(peer)
        )
    plaintext = pb.TransportSocket(name=_RAW, typed_config=pb.pack(pb.RawBuffer()))
    yield pb.Cluster.TransportSocketMatch(name=PLAINTEXT, match=peer_metadata(None), transport_socket=plaintext)


def transport_socket(peer: Peer) -> pb.TransportSocket:
    """Return the socket for TLS with a peer. For mTLS: TLS 1.3, the proxy's own certificate, and only the peer's SPIFFE ID."""
    if isinstance(peer, BackendTls):
        return _to_server(peer)
    newest = pb.TlsParameters.TlsProtocol.TLSv1_3
    exactly = pb.SubjectAltNameMatcher(
        san_type=pb.SubjectAltNameMatcher.SanType.URI, matcher=pb.StringMatcher(exact=peer.identity)
    )
    combined = pb.CommonTlsContext.CombinedCertificateValidationContext(
        default_validation_context=pb.CertificateValidationContext(match_typed_subject_alt_names=[exactly]),
        validation_context_sds_secret_config=pb.SdsSecretConfig(name=names.ROOTS, sds_config=ads()),
    )
    context = pb.UpstreamTlsContext(
        sni=peer.server_name,
        max_session_keys=pb.UInt32Value(
            value=0
        ),  # in a resumed session the server would not see the client's certificate
        common_tls_context=pb.CommonTlsContext(
            # Envoy's clients default to at most TLS 1.2, so the maximum is needed too.
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=newest, tls_maximum_protocol_version=newest),
            tls_certificate_sds_secret_configs=[pb.SdsSecretConfig(name=names.IDENTITY, sds_config=ads())],
            combined_validation_context=combined,
            alpn_protocols=[MESH_ALPN] if peer.opaque else (),
        ),
    )
    return pb.TransportSocket(name=_TLS, typed_config=pb.pack(context))


def _to_server(tls: BackendTls) -> pb.TransportSocket:
    """Return the socket for TLS with a server: one of the names of the policy, signed by one of its CAs."""
    combined = pb.CommonTlsContext.CombinedCertificateValidationContext(
        default_validation_context=pb.CertificateValidationContext(
            match_typed_subject_alt_names=[_alt_name(name) for name in tls.names]
        ),
        validation_context_sds_secret_config=pb.SdsSecretConfig(name=names.policy_roots(tls), sds_config=ads()),
    )
    certificates = [pb.SdsSecretConfig(name=names.secret(tls.client), sds_config=ads())] if tls.client else []
    context = pb.UpstreamTlsContext(
        sni=tls.hostname,
        common_tls_context=pb.CommonTlsContext(
            tls_params=pb.TlsParameters(
                tls_minimum_protocol_version=pb.TlsParameters.TlsProtocol.TLSv1_2,
                tls_maximum_protocol_version=pb.TlsParameters.TlsProtocol.TLSv1_3,
            ),
            tls_certificate_sds_secret_configs=certificates,
            combined_validation_context=combined,
        ),
    )
    return pb.TransportSocket(name=_TLS, typed_config=pb.pack(context))


def _alt_name(name: AltName) -> pb.SubjectAltNameMatcher:
    kinds = pb.SubjectAltNameMatcher.SanType
    return pb.SubjectAltNameMatcher(
        san_type=kinds.DNS if name.kind == "dns" else kinds.URI, matcher=pb.StringMatcher(exact=name.value)
    )
