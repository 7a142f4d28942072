"""Regular expressions of the model (RE2) in the dialect of nginx (PCRE), where both mean the same."""

import re
from collections.abc import Iterator

_PIECE = re.compile(
    r"(?P<quoted>\\Q.*?(?:\\E|$))"
    r"|(?P<hex>\\x(?:\{(?P<code>[0-9A-Fa-f]+)\}|(?P<digits>[0-9A-Fa-f]{2})))"
    r"|(?P<escape>\\.)"
    r"|(?P<posix>\[:\^?[a-z]+:\])"
    r"|(?P<named>\(\?P?<[A-Za-z0-9_]+>)"
    r"|(?P<flags>\(\?)"
    r"|(?P<open>\[\^?\]?)"
    r"|(?P<plain>.)",
    re.DOTALL,
)
_DIFFERENT = frozenset("CvpP123456789")
"""Escapes with another meaning in PCRE (`\\v`), or of characters beyond ASCII, or octal numbers like references."""


class Untranslatable(Exception):
    """A regular expression that PCRE has not, or interprets differently; the text is the part."""


def to_pcre(pattern: str) -> str:
    """Return an expression for PCRE that matches the same ASCII texts completely. Raises Untranslatable."""
    return rf"(?:{''.join(_translated(pattern))})\z"


def _translated(pattern: str) -> Iterator[str]:
    inside = False  # in a character class
    for piece in _PIECE.finditer(pattern):
        text, kind = piece[0], piece.lastgroup
        if not text.isascii() or (kind == "hex" and int(piece["code"] or piece["digits"], 16) > 0x7F):
            raise Untranslatable(text)
        if kind == "escape" and text[1] in _DIFFERENT:
            raise Untranslatable(text)
        if kind == "quoted":
            yield re.escape(text.removeprefix(r"\Q").removesuffix(r"\E"))
        elif inside:
            yield text
            inside = kind in {"posix", "escape", "hex"} or not text.endswith("]")
        elif kind == "named" or text == "(":  # groups set no variables
            yield "(?:"
        elif kind == "posix":  # outside of a class, this is a class of these characters
            yield rf"[\{text[1:-1]}]"
        else:
            yield text
            inside = kind == "open"
