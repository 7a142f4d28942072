"""The OpenAPI schemas of all kinds: published schemas are JSON files, schemas of the mesh's kinds are Python code."""
