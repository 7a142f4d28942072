"""The routing model: destinations, weights and access rules, without Kubernetes or Envoy types."""
