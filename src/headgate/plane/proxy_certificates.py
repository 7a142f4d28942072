"""The certificate in a proxy's configuration, as the inspect API shows it."""

from functools import lru_cache

from cryptography import x509

from headgate.identity.certificates import read_certificates, validity
from headgate.model.identities import Credential
from headgate.resources.inspect import ProxyCertificate
from headgate.resources.meta import timestamp


def proxy_certificate(credential: Credential | None, fault: str) -> ProxyCertificate | None:
    """Return the identity, the time of issue and the validity of the certificate in a proxy's configuration."""
    if credential is None:
        return ProxyCertificate(message=fault) if fault else None
    first, last, identity = _certificate_fields(credential.chain)
    return ProxyCertificate(
        identity=identity,
        issue_time=timestamp(credential.issued or first),
        not_before_time=timestamp(first),
        not_after_time=timestamp(last),
        message=fault,
    )


@lru_cache(10_000)
def _certificate_fields(chain: str) -> tuple[float, float, str]:
    leaf = read_certificates(chain, "a proxy's certificate")[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return *validity(leaf), next(iter(names.get_values_for_type(x509.UniformResourceIdentifier)), "")
