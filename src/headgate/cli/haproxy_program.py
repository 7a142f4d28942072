"""HAProxy as a program on this machine: the check of a configuration, and a graceful reload."""

import os
import shutil
import signal
from pathlib import Path
from typing import NamedTuple

from headgate.cli.rendered_files import output_of_failure

PID_FILE = "haproxy.pid"
MAIN = "haproxy.cfg"
_PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_haproxy() -> str:
    """Return the path of HAProxy; empty if this machine has none. `sbin` is not on the PATH of every user."""
    return shutil.which("haproxy") or shutil.which("haproxy", path=_PATHS) or ""


class Haproxy(NamedTuple):
    """HAProxy that runs with the files of a directory, as a master process with workers (`-W`)."""

    program: str

    def check(self, directory: Path, main: Path) -> str:
        """Return why HAProxy rejects a file; empty if it accepts it, or if this machine has no HAProxy to ask."""
        if not self.program:
            return ""
        messages = output_of_failure([self.program, "-c", "-f", str(directory / main)])
        errors = [line for line in messages.splitlines() if line.startswith("[ALERT]")]
        return "\n".join(errors) or messages

    def reload(self, directory: Path) -> str:
        """Reload the HAProxy of the directory: a new worker takes the ports, and the old one completes its requests.

        The master process starts the worker after this call. If the worker cannot start, the old one continues.
        """
        try:
            os.kill(int((directory / PID_FILE).read_text()), signal.SIGUSR2)
        except (OSError, ValueError):
            start = f"haproxy -W -p {directory / PID_FILE} -f {directory / MAIN}"
            return f"no HAProxy runs with it; start it with `{start}`, or set --reload"
        return ""
