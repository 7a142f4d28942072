"""The mesh to Envoy's words: one View per proxy, encoded to bytes with digests. Pure."""
