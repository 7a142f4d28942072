"""The interfaces to an object store, and the functions that all implementations of a store share."""
