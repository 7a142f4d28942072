"""The directory with the files of a rendered configuration, which a proxy on this machine runs with."""

import shutil
from pathlib import Path
from typing import Protocol

from headgate.atomic_file import write_private
from headgate.model.identities import PrivateText
from headgate.render.output import Rendered

CANDIDATE = ".next"
"""The subdirectory with a configuration that is checked before the proxy loads it."""


class ProxyProgram(Protocol):
    """The program that runs a configuration on this machine."""

    def check(self, directory: Path, main: Path) -> str:
        """Return why the program rejects the main file, relative to `directory`; empty if it accepts the file."""

    def reload(self, directory: Path) -> str:
        """Activate the files of a directory in the running proxy; return why that failed, or an empty text."""


def write_files(rendered: Rendered, directory: Path) -> None:
    """Write all files, each atomically; the main file comes last, because it names the rest."""
    for name, text in sorted(rendered.files.items(), key=lambda entry: entry[0] == rendered.main):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, (text.reveal() if isinstance(text, PrivateText) else text).encode())


def activate(rendered: Rendered, directory: Path, program: ProxyProgram) -> str:
    """Check a configuration, replace the files and reload the proxy; return why that failed, or an empty text."""
    candidate = directory / CANDIDATE
    shutil.rmtree(candidate, ignore_errors=True)
    write_files(rendered, candidate)
    fault = program.check(directory, Path(CANDIDATE) / rendered.main)
    shutil.rmtree(candidate)
    if fault:
        return f"the new configuration is not valid, so {directory} stays unchanged: {fault}"
    write_files(rendered, directory)
    failure = program.reload(directory)
    if failure:
        return f"{directory} has the new configuration, but the proxy has not loaded it: {failure}"
    for path in (directory / "tls").glob("*"):  # keys that no listener uses anymore
        if str(path.relative_to(directory)) not in rendered.files:
            path.unlink()
    return ""
