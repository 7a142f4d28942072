"""The host for Kubernetes: a replica of the control plane, its objects in the cluster, and clients of the API server."""
