"""One machine: processes as pods, loopback addresses, Service -> EndpointSlice, and the node's Envoy."""
