"""Pods as processes on one machine."""
