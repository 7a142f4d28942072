"""The OpenAPI schema of each kind: published schemas are read from data, those of the mesh's kinds are written here."""
