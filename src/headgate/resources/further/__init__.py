"""The names and schemas of Kubernetes' kinds that headgate does not need for the mesh, as data."""
