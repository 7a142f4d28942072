"""Compare two compiled meshes: the classes of requests whose treatment differs, each with an example. Pure."""
