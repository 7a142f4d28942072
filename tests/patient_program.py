"""headgate as a program that waits for the warnings about a write on a busy machine too, where they would be left out."""

import sys
from pathlib import Path

_LIMITS_S = 20
_PROGRAM = (
    f"import headgate.plane.write_warnings as limits; limits.WARNINGS_S = limits.EFFECT_S = {_LIMITS_S}; "
    "from headgate.cli import main; main()"
)
COMMAND = (sys.executable, "-P", "-c", _PROGRAM)
"""The beginning of the command line."""


def write_script(path: Path) -> None:
    """Write the program as a script."""
    path.write_text("\n".join((f"#!{sys.executable} -P", _PROGRAM.replace("; ", "\n"), "")))
    path.chmod(0o755)
