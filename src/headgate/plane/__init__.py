"""The control plane: compiles objects to proxy configurations, writes statuses and exposes metrics.

It is the same in standalone mode and in a Kubernetes cluster.
"""
