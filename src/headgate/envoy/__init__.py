"""Render the mesh as Envoy resources: one view per proxy, encoded to bytes with digests. Pure."""
