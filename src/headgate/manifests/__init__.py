"""Manifests: read YAML and JSON files and directories, and apply their objects to a store."""

from pathlib import Path

STANDARD_INPUT = Path("-")
