"""The embedded store: a Kubernetes API server's rules over objects in memory, made durable by SQLite."""
