"""headgate: a service-mesh traffic control plane."""

__version__ = "0.1.0"
