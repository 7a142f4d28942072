"""The group `inspect.headgate.dev`: questions about the running mesh."""
