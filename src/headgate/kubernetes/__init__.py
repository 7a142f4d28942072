"""Clients of a Kubernetes cluster: its API server, its TokenReviews and cert-manager."""
