"""The `headgate` command (docs/commands.md)."""

import sys
from importlib import import_module

from headgate.errors import HeadgateError

CONTAINER_PROGRAMS = ("agent", "sidecar", "gateway")
"""Modules with the programs of containers beside the control plane's. They start without the libraries of the command line, because each pod
with a sidecar runs three of them before its application starts: with them, a start took 4 s of processor time, and not 0.3 s."""


def main() -> None:
    """Run the command line and exit with the code of the command."""
    name, *words = sys.argv[1:] or [""]
    if name in CONTAINER_PROGRAMS:
        _run_in_container(name, *words)
    else:
        from headgate.cli.app import app

        app(prog_name="headgate")


def _run_in_container(name: str, *words: str) -> None:
    """Run a program of a container. For a HeadgateError print a message without a traceback, and exit with 1."""
    try:
        import_module(f"headgate.cli.{name}").main(words)
    except HeadgateError as error:
        from headgate.formatting import printable

        sys.exit(f"error: {printable(str(error))}")
