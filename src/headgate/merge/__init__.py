"""Structured merge: which manager owns which field of an object, and what an apply changes. Pure."""
