"""Statuses and Events: what the compiler and the proxies say, written onto the objects."""
