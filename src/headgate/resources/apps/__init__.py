"""Deployments and ReplicaSets: a room for each."""
