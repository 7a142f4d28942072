"""nginx as a program on this machine: its modules, the check of a configuration, and a graceful reload."""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from headgate.proxy_programs.programs import output_of_failure

PID_FILE = "nginx.pid"
_BUILT = re.compile(r"--with-stream=dynamic\b")
_MODULES = re.compile(r"--modules-path=(\S+)")


def has_started(directory: Path) -> bool:
    """Return whether an nginx has started with a directory: it writes its process ID when it listens on all ports."""
    try:
        return bool((directory / PID_FILE).read_text())
    except OSError:
        return False


def stream_module(program: str) -> str:
    """Return the file of the stream module if this nginx loads it at run time, else an empty text."""
    if not program:
        return ""
    built = subprocess.run([program, "-V"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    match = _MODULES.search(built) if _BUILT.search(built) else None
    return str(Path(match[1]) / "ngx_stream_module.so") if match else ""


class Nginx(NamedTuple):
    """nginx that runs with a directory as its prefix: `nginx -p DIR -c nginx.conf`."""

    program: str

    def check(self, directory: Path, main: Path) -> str:
        """Return why nginx rejects a file; empty if it accepts it, or if this machine has no nginx."""
        return output_of_failure(self.command(directory, main, "-t", "-q")) if self.program else ""

    def reload(self, directory: Path) -> str:
        """Reload the nginx that runs with the directory: its workers complete their requests, and new ones start."""
        if not _runs(directory / PID_FILE):
            return f"no nginx runs with it; start it with `nginx -p {directory} -c nginx.conf`, or set --reload"
        return output_of_failure(self.command(directory, Path("nginx.conf"), "-s", "reload"))

    def command(self, directory: Path, main: Path, *more: str) -> list[str]:
        """Return the command that runs nginx with a file of the directory."""
        return [self.program, "-p", str(directory.resolve()), "-e", "stderr", "-c", str(main), *more]


def _runs(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True
