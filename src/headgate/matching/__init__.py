"""Decide whether a request can fit a match and none of several other matches. Pure."""
