"""The controllers of one machine: Deployments, ReplicaSets, endpoints, addresses of Services and Gateways."""
