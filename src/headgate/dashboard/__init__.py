"""The dashboard: a page about the mesh for browsers, and its server on loopback (docs/dashboard.md)."""
