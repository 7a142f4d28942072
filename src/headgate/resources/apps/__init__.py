"""Deployments, ReplicaSets, StatefulSets and DaemonSets: a room for each."""
