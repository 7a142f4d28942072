"""Where objects live: the embedded store, manifest files, and (later) a cluster's API server."""
