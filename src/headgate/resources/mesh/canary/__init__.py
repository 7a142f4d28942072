"""Canaries: types, schema, checks, and the kind."""
