"""Checks of single objects. `schema` compares objects with schemas; the other modules check what schemas can't express."""
