"""Admission of objects to a store: checks, defaults, and injection of sidecars."""
