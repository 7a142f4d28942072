"""The control plane: compiles objects to proxy configurations, and serves statuses and metrics. Independent of the host."""
