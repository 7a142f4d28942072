"""The proxies of Gateways and Services on a cluster: their labels, annotations and names."""

import hashlib

PARAMETERS = "headgate.dev/gateway-parameters"
"""Label of ConfigMaps with parameters of Gateways. headgate reads no other ConfigMaps of users."""
OWN_KEYS = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
"""Labels of all objects of a Gateway on a cluster; the first two select its pods."""
PROXY_OF = "headgate.dev/proxy-of-gateway"
"""Annotation of a pod in `headgate-system`, written by headgate: the Gateway whose proxy it runs, as `namespace/name`."""
PROXY_OF_SERVICE = "headgate.dev/proxy-of-service"
"""Annotation of a pod in `headgate-system`, written by headgate: the Service whose proxy it runs, as `namespace/name`."""
SERVICE_GATEWAY = "headgate.dev/gateway"
"""Annotation of a Service: the proxy behind it for clients without a sidecar."""
ENVOY, NGINX = PROXIES = ("envoy", "nginx")
"""The values of the annotation."""


def proxy_name(namespace: str, name: str, of: str = "gateway") -> str:
    """Return the Deployment name for a Gateway, or for a Service if `of` is `service`, on a cluster; each has its own."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:8]
    return f"{f'{of}-{namespace}-{name}'.replace('.', '-')[:54].rstrip('-')}-{digest}"
