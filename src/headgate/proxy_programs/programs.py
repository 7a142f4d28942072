"""Finding and running the programs of proxies."""

import shutil
import subprocess
from collections.abc import Sequence

_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_program(name: str) -> str:
    """Return the path of a program; empty if this machine has none. `sbin` is not on the PATH of every user."""
    return shutil.which(name) or shutil.which(name, path=_PATHS) or ""


def output_of_failure(command: Sequence[str]) -> str:
    """Run a command. Return what it printed if it failed, else an empty text."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's command
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return (done.stderr + done.stdout).strip() or f"exit code {done.returncode}" if done.returncode else ""
