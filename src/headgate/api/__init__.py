"""The HTTP APIs that every host serves: the metrics API, the inspect API, and code that their servers share."""
