"""Kubernetes' core kinds: a room for each."""
