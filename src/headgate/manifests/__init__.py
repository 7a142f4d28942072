"""Manifests: YAML documents and directories, and applying them to a store of objects."""

from pathlib import Path

STANDARD_INPUT = Path("-")
