"""Secrets, and the certificates in them."""

import base64
import binascii
from collections.abc import Iterator

from msgspec import field

from headgate.errors import Cause
from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.grammars import config_key_fault
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Object, Resource, part


class CertificateData(Input, frozen=True, kw_only=True):
    """The certificate and the key in a Secret's `data`, and CA certificates, in base64. They are never printed."""

    chain: str = field(name="tls.crt", default="")
    key: str = field(name="tls.key", default="")
    roots: str = field(name="ca.crt", default="")

    def __repr__(self) -> str:
        return "CertificateData([redacted])"


class Secret(Resource, frozen=True, kw_only=True):
    """A Secret. headgate reads the certificates and the key of type `kubernetes.io/tls`."""

    type: str = "Opaque"
    data: CertificateData = CertificateData()

    @property
    def certificate(self) -> tuple[bytes, bytes]:
        """The certificate chain and the key as PEM; each is empty if it is missing or not base64."""
        return _from_base64(self.data.chain), _from_base64(self.data.key)

    @property
    def roots(self) -> bytes:
        """The CA certificates as PEM; empty if they are missing or not base64."""
        return _from_base64(self.data.roots)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def secret_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the keys of a Secret, and each entry of `data` that is not base64. No message has a value."""
    yield from key_causes(obj, "data", "stringData")
    yield from _base64_map(obj, "data")


def key_causes(obj: Object, *fields: str) -> Iterator[Cause]:
    """Yield the keys that Kubernetes rejects: keys become the names of files in volumes."""
    for name in fields:
        for key in part(obj, name):
            if fault := config_key_fault(key):
                yield Cause(name, fault)
    if fields == ("data", "binaryData"):
        for key in part(obj, "data").keys() & part(obj, "binaryData").keys():
            yield Cause(f"binaryData.{key}", "is also a key of data; keys must differ")


def _base64_map(obj: Object, field: str) -> Iterator[Cause]:
    for key, text in part(obj, field).items():
        if isinstance(text, str) and not _is_base64(text):
            yield Cause(f"{field}.{key}", "must be base64")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(
            text.replace("\n", "").replace("\r", ""), validate=True
        )  # Kubernetes' decoder (Go) skips line breaks too
    except ValueError:
        return False
    return True


KIND = Kind(
    names_of("Secret", ""),
    shape=Secret,
    checks=secret_causes,
    columns=(
        NAME,
        Column("Type", cell=cells.at("type", "Opaque")),
        Column("Data", cell=cells.count("data")),
        AGE,
    ),
    selectable=frozenset({"type"}),
)
