"""The `headgate` command (docs/reference/command-line.md)."""

import atexit
import gc
import os
import sys
from importlib import import_module

from headgate.errors import HeadgateError
from headgate.event_loop import GC_THRESHOLDS

CONTAINER_PROGRAMS = ("agent", "sidecar", "gateway")
"""Modules with the programs of containers beside the control plane's. They start without the libraries of the command line, because each pod
with a sidecar runs three of them before its application starts: with them, a start took 4 s of processor time, and not 0.3 s."""

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with the code of the command."""
    name, *words = sys.argv[1:] or [""]
    if name in CONTAINER_PROGRAMS:
        _run_in_container(name, *words)
    else:
        gc.set_threshold(*GC_THRESHOLDS)  # imports make no garbage; the search for it took a sixth of their time
        try:
            from headgate.cli.app import app

            app(prog_name="headgate")
        except KeyboardInterrupt:  # during the imports: later, the command itself ends with this code
            _exit(_INTERRUPTED)
        except SystemExit as ended:
            if isinstance(ended.code, int):
                _exit(ended.code)
            raise


def _exit(code: int) -> None:
    """End this process as the interpreter does, but let the kernel free its memory: the interpreter takes 0.1 s for it.

    Return when the output can't be written, which the interpreter then reports.
    """
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it was closed at the start
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def _run_in_container(name: str, *words: str) -> None:
    """Run a program of a container. For a HeadgateError print a message without a traceback, and exit with 1."""
    try:
        import_module(f"headgate.cli.{name}").main(words)
    except HeadgateError as error:
        from headgate.formatting import printable

        sys.exit(f"error: {printable(str(error))}")
