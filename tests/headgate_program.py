"""headgate as a program in tests: a server that has already imported it (`fork_server`) starts it."""

import atexit
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests import fork_client, fork_server, perturbation


@cache
def server() -> str:
    """Return the name of the server; the first call in a process starts it. It ends with the process."""
    name = f"headgate-tests-{os.getpid()}"
    hold_ms = filter(None, [os.environ.get(perturbation.VARIABLE)])
    process = subprocess.Popen(
        [sys.executable, "-P", fork_server.__file__, name, *hold_ms],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    assert process.stdin
    assert process.stdout
    with process.stdout as lines:
        assert lines.readline() == b"ready\n"
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # runs first
    return name


def command() -> tuple[str, ...]:
    """Return the beginning of a command line that stands for `headgate`."""
    return (sys.executable, "-I", "-S", fork_client.__file__, server())


def write_script(path: Path) -> None:
    """Write a script that stands for `headgate`."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    path.chmod(0o755)
