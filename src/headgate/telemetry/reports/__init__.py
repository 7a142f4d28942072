"""Reads the proxies' OTLP reports: metrics as growth of flows, and log records of requests. Pure."""
