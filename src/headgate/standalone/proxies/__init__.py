"""Runs Envoy processes on one machine."""
