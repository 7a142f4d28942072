"""Envoy processes on one machine."""
