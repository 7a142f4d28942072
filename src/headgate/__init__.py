"""headgate: a service-mesh traffic control plane."""

__version__ = "0.1.0"

KUBERNETES_VERSION = f"v1.30.0+headgate-{__version__}"
"""The version that the embedded API server reports: the Kubernetes release that it follows, and headgate's version."""
