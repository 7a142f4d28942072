"""Between proxies. Mutual TLS towards endpoints (R74, R76): who must answer, and how a cluster tells its endpoints apart.

An endpoint or its locality names its peer in metadata, and its cluster has a transport socket for each. Whatever it names
that its cluster doesn't know is called by TLS as well, as the first of the peers: an update that is half there may fail a call
and never sends it in plaintext. Plaintext is only for endpoints that say so.
"""

from collections.abc import Iterator

from headgate.envoy import names, pb
from headgate.envoy.config_source import ads
from headgate.resources.meta import Value

MATCH_METADATA = "envoy.transport_socket_match"  # Envoy's own key of an endpoint's metadata
PEER_FIELD = "headgate"
PLAINTEXT = "plaintext"
MESH_ALPN = "headgate"  # by which a port that is not HTTP knows the mesh's TLS from its application's
UNREACHED_HEADER = "x-headgate-unreached"
"""A response header of a server's proxy: the application has certainly not seen the request, so the caller's proxy may
try another pod."""
DENIED_HEADER = "x-headgate-denied"
"""A response header of a server's proxy: access rules refused the request. The caller's proxy counts it apart."""
_TLS, _RAW = "tls", "raw"  # Envoy finds both by the type of their configuration; each cluster repeats the names


class Peer(Value, frozen=True, kw_only=True, order=True):
    """Who must answer (SPIFFE ID), and the server name by which the Service port is meant. `opaque`: it is not HTTP."""

    identity: str
    server_name: str
    opaque: bool = False

    @property
    def key(self) -> str:
        """Name it within a cluster."""
        return f"{self.server_name} {self.identity}"


def peer_metadata(peer: Peer | None) -> pb.Struct:
    """Return what an endpoint says about its transport, in a cluster that has peers."""
    return pb.Struct(fields={PEER_FIELD: pb.Value(string_value=peer.key if peer else PLAINTEXT)})


def add_transport_sockets(cluster: pb.Cluster, peers: tuple[Peer, ...]) -> None:
    """Give a cluster a transport socket for each peer, and one for endpoints in plaintext.

    The first peer's is what the cluster has for all that match nothing, which serves the peer itself too: each TLS socket
    costs a proxy 16 KiB.
    """
    cluster.transport_socket_matches.extend(_matches(peers))
    cluster.transport_socket.CopyFrom(transport_socket(peers[0]))


def _matches(peers: tuple[Peer, ...]) -> Iterator[pb.Cluster.TransportSocketMatch]:
    for peer in peers[1:]:
        yield pb.Cluster.TransportSocketMatch(
            name=peer.key, match=peer_metadata(peer), transport_socket=transport_socket(peer)
        )
    plaintext = pb.TransportSocket(name=_RAW, typed_config=pb.pack(pb.RawBuffer()))
    yield pb.Cluster.TransportSocketMatch(name=PLAINTEXT, match=peer_metadata(None), transport_socket=plaintext)


def transport_socket(peer: Peer) -> pb.TransportSocket:
    """Return mutual TLS with a peer: TLS 1.3, with the proxy's own certificate, and with exactly that SPIFFE ID."""
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
        max_session_keys=pb.UInt32Value(value=0),  # resumed, a session tells the server no more who calls
        common_tls_context=pb.CommonTlsContext(
            # Envoy's clients stop at TLS 1.2 by themselves: the maximum must be said too.
            tls_params=pb.TlsParameters(tls_minimum_protocol_version=newest, tls_maximum_protocol_version=newest),
            tls_certificate_sds_secret_configs=[pb.SdsSecretConfig(name=names.IDENTITY, sds_config=ads())],
            combined_validation_context=combined,
            alpn_protocols=[MESH_ALPN] if peer.opaque else (),
        ),
    )
    return pb.TransportSocket(name=_TLS, typed_config=pb.pack(context))
