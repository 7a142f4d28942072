"""Colour where it carries meaning: what fails is red, what access rules refuse is yellow. On a terminal only (NO_COLOR)."""

import os
import sys
from typing import Literal

Colour = Literal["", "failing", "refused"]
_CODES = {"failing": "\x1b[31m", "refused": "\x1b[33m"}
_RESET = "\x1b[0m"


def wanted() -> bool:
    """Return whether standard output is a terminal whose user has nothing against colours (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: Colour) -> str:
    """Return a text in a colour."""
    return f"{_CODES[colour]}{text}{_RESET}" if colour and text else text
