"""TLS at the edge of the mesh as immutable values: the certificates of Gateways, of their clients, and TLS with backends."""

import hashlib
from typing import Literal

from headgate.model.identities import PrivateText
from headgate.resources.meta import Key, Value


class ListenerCertificate(Value, frozen=True, kw_only=True):
    """The certificate of a Gateway listener, from `secret` (`namespace/name`). The key is never printed."""

    secret: str
    chain: str
    key: PrivateText


class ClientCertificates(Value, frozen=True, kw_only=True):
    """The certificates that clients of a Gateway port present: signed by an authority in `authorities` (PEM).

    `sources` names the ConfigMaps (`namespace/name`) of the authorities. With `optional`, clients with another certificate or
    without one are accepted too.
    """

    authorities: str
    sources: tuple[str, ...]
    optional: bool = False

    def __str__(self) -> str:
        """Return the requirement in words: `required, signed by an authority in ConfigMap default/ca`."""
        word = "requested, but not required" if self.optional else "required"
        return f"{word}, signed by an authority in ConfigMap {' or '.join(self.sources)}"


def words(required: ClientCertificates | None) -> str:
    """Return the certificates that clients of a port need, in words."""
    return str(required) if required else "not requested"


class AltName(Value, frozen=True, kw_only=True, order=True):
    """A name that the certificate of a server may have: a DNS name, which may begin with `*.`, or a URI."""

    kind: Literal["dns", "uri"]
    value: str


class BackendTls(Value, frozen=True, kw_only=True):
    """The TLS of a Gateway's connections to a backend, by the policy `origin` (GEP-1897).

    A server gets the server name (SNI) `hostname`, and must have a certificate for one of `names` that a CA in `roots` (PEM)
    has signed. It gets the certificate in the Secret `client` (`namespace/name`), which is empty for none. Without `roots`, the CAs of the proxy's system are trusted. `opaque`: the port's own protocol is not HTTP. With a
    `fault`, the reason, no server can prove its identity.
    """

    origin: Key
    hostname: str
    names: tuple[AltName, ...]
    roots: str = ""
    client: str = ""
    opaque: bool = False
    fault: str = ""


_DIGITS = 8


def backend_words(tls: BackendTls) -> str:
    """Return the TLS of a backend as words for users; the CA certificates as the beginning of their SHA-256."""
    names = " or ".join(name.value for name in tls.names)
    roots = (
        f"CAs {hashlib.sha256(tls.roots.encode()).hexdigest()[:_DIGITS]}" if tls.roots else "CAs of the proxy's system"
    )
    own = f", with the certificate of Secret {tls.client}" if tls.client else ""
    proof = f"proven by the {roots}" if names == tls.hostname else f"a certificate for {names} by the {roots}"
    return f"TLS by {tls.origin}: server name {tls.hostname}, {proof}{own}"
