"""The proxies of Gateways and Services on a cluster: their labels, annotations and names."""

import hashlib

PARAMETERS = "headgate.dev/gateway-parameters"
"""Label of ConfigMaps with parameters of Gateways. headgate reads no other ConfigMaps of users."""
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
"""Label of all objects of a Gateway on a cluster: its name, shortened to the length of labels (GEP-1762)."""
OWN_KEYS = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", GATEWAY_NAME)
"""Labels of all objects of a Gateway on a cluster; the first two select its pods."""
LONGEST_LABEL = 63
"""The length of a label's value (Kubernetes)."""
PROXY_OF = "headgate.dev/proxy-of-gateway"
"""Annotation of a pod in `headgate-system`, written by headgate: the Gateway whose proxy it runs, as `namespace/name`."""
PROXY_OF_SERVICE = "headgate.dev/proxy-of-service"
"""Annotation of a pod in `headgate-system`, written by headgate: the Service whose proxy it runs, as `namespace/name`."""
SERVICE_GATEWAY = "headgate.dev/gateway"
"""Annotation of a Service: the proxy behind it for clients without a sidecar."""
ENVOY, NGINX = PROXIES = ("envoy", "nginx")
"""The values of the annotation."""


def gateway_label(name: str) -> str:
    """Return the value of `GATEWAY_NAME`: the name of a Gateway, or the beginning of a longer name with its digest."""
    if len(name) <= LONGEST_LABEL:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_LABEL - len(digest) - 1]}-{digest}"


def proxy_name(namespace: str, name: str, of: str = "gateway") -> str:
    """Return the Deployment name for a Gateway, or for a Service if `of` is `service`, on a cluster; each has its own."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:8]
    return f"{f'{of}-{namespace}-{name}'.replace('.', '-')[:54].rstrip('-')}-{digest}"
