"""The configuration of nginx (1.22 and newer)."""
