"""The embedded Kubernetes API: a Kubernetes API server's protocol over a store."""
