"""Render the mesh as Envoy resources: each proxy's view of the mesh, encoded to bytes with digests."""
