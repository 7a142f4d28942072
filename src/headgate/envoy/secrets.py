"""What listeners show their clients, delivered as secrets of its own: a new certificate touches no listener."""

from headgate.envoy import pb
from headgate.model.secrets import PrivateText


def certificate(name: str, chain: str, key: PrivateText) -> pb.Secret:
    """Return a certificate with its key (PEM). Only the proxy may see it: whoever prints resources leaves it out."""
    return pb.Secret(
        name=name,
        tls_certificate=pb.TlsCertificate(
            certificate_chain=pb.DataSource(inline_string=chain), private_key=pb.DataSource(inline_string=key.reveal())
        ),
    )
