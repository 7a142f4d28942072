"""TLS settings of servers that renew their certificate while they run."""

import ssl
import tempfile
from pathlib import Path

from headgate.atomic_file import write_private
from headgate.latest import Latest
from headgate.model.identities import Credential


def tls_context(credential: Credential) -> ssl.SSLContext:
    """Return the TLS settings of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, credential)
    return context


async def follow_renewals(context: ssl.SSLContext, certificate: Latest[Credential]) -> None:
    """Use each new certificate for new connections, until canceled."""
    async for credential in certificate.changes():
        _load(context, credential)


def _load(context: ssl.SSLContext, credential: Credential) -> None:
    with tempfile.TemporaryDirectory() as directory:  # OpenSSL reads keys from files only
        chain, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        write_private(chain, credential.chain.encode())
        write_private(key, credential.key.reveal().encode())
        context.load_cert_chain(chain, key)
