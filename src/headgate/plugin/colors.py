"""Colour where it carries meaning: what fails is red, what access rules refuse is yellow. On a terminal only (NO_COLOR)."""

import os
import sys
from typing import Literal

Color = Literal["", "failing", "refused"]
_CODES = {"failing": "\x1b[31m", "refused": "\x1b[33m"}
_RESET = "\x1b[0m"


def wanted() -> bool:
    """Return whether standard output is a terminal whose user has nothing against colours (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, color: Color) -> str:
    """Return a text in a colour."""
    return f"{_CODES[color]}{text}{_RESET}" if color and text else text
