"""The embedded API."""
