"""Redirect a pod's TCP connections to its transparent sidecar, without changes to the application."""
