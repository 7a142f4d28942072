"""The embedded store of Kubernetes objects: in memory, with a Kubernetes API server's rules, persisted in SQLite."""
