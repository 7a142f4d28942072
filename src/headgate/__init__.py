"""headgate: a service-mesh traffic control plane."""

__version__ = "0.1.0"

KUBERNETES_VERSION = f"v1.30.0+headgate-{__version__}"
"""The version of Kubernetes whose rules the embedded API follows."""
