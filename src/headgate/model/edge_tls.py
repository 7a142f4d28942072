"""TLS at the edge of the mesh as immutable values: the certificates of Gateways, and of their clients."""

from headgate.model.identities import PrivateText
from headgate.resources.meta import Value


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
