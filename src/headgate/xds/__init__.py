"""Incremental ADS: a pure session per stream, and the server that moves its bytes."""
