"""The controllers of one machine: for Deployments, ReplicaSets, EndpointSlices, and addresses of Services and Gateways."""
