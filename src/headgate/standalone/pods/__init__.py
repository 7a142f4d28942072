"""Runs pods as processes on one machine."""
