"""Reads the proxies' OTLP reports: converts metrics to the growth of flows, and decodes log records of requests."""
