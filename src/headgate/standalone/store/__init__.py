"""The embedded store of Kubernetes objects: in memory, with an API server's semantics, persisted in SQLite."""
