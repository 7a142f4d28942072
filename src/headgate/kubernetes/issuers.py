"""The issuers of a control plane on a cluster."""

import time

from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import Issuer
from headgate.identity.keys import SecretKeyStore
from headgate.kubernetes.cert_manager import CertManagerIssuer
from headgate.kubernetes.options import Options
from headgate.objects.ports import Store


def issuers(options: Options, store: Store) -> tuple[Issuer, Issuer]:
    """Return the issuers for proxies and for the control plane's servers: cert-manager's if the user names one.

    Otherwise both are headgate's own. The first one rotates the root in the active replica; the second one only reads the keys.
    """
    domain = options.settings.trust_domain
    if options.mesh.cert_manager_issuer:
        issuer = CertManagerIssuer(store, options.mesh.cert_manager_issuer, domain, clock=time.time)
        return issuer, issuer
    own, of_servers = (EmbeddedIssuer(SecretKeyStore(store), domain, clock=time.time) for _ in range(2))
    return own, of_servers
