"""The interfaces to an object store, and the rules that all its implementations share."""
