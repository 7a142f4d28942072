"""The dashboard: a page about the mesh for browsers, and its server on loopback (docs/tasks/dashboard.md)."""
