"""The names and schemas of the kinds of Kubernetes that headgate does not need for the mesh, as data."""
