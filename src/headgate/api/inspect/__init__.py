"""The API group `inspect.headgate.dev`, which describes the running mesh."""
