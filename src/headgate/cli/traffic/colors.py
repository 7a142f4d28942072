"""Terminal colors: failures are red, denied requests yellow. Without a terminal, or with NO_COLOR, text has no color."""

import os
import sys
from typing import Literal

Color = Literal["", "failing", "denied"]
STYLES = {"": "", "failing": "red", "denied": "yellow"}
"""The colors as styles of rich, for tables."""
_CODES = {"failing": "\x1b[31m", "denied": "\x1b[33m"}
_RESET = "\x1b[0m"


def enabled() -> bool:
    """Return whether stdout is a terminal with colors, and NO_COLOR is not set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, color: Color) -> str:
    """Return a text with the escape codes of a color."""
    return f"{_CODES[color]}{text}{_RESET}" if color and text else text
