"""The configuration of HAProxy (2.6 and newer)."""
