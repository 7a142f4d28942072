"""A cluster as the host: what talks to its API server."""
