"""Kubernetes objects: the kinds that headgate knows, their types, schemas, versions and checks."""
