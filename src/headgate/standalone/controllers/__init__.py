"""The controllers of one machine: for all workloads, EndpointSlices, and addresses of Services and Gateways."""
