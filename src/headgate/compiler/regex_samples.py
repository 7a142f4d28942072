"""Find a text that a regular expression (RE2) matches, and facts about all texts that it matches.

The answers are certain: samples are verified by matching, and facts follow from the match range that RE2 reports.
Otherwise the answer is "unknown" (None or False).
"""

import functools
import re
import string

import re2

from headgate.resources.regexes import fault, matches

_RANGE = 256  # the maximum length in bytes of each bound of RE2's match range
_CHARACTERS = string.ascii_letters + string.digits + "/-_.~:=;, " + string.punctuation
_EDGES = "bBAzQE"  # escapes that match no character
_REPEAT = re.compile(r"\{(\d+)(?:,\d*)?\}")
_ANYTHING = {".*", "(?:.*).*", "(?:).*", "(?:/).*", "(?:^/).*", "(?:^.*).*", "(?:/.*).*", "/.*", "^.*$", "^.*", ".*$"}
_PREFIXED = re.compile(r"\(\?:(?P<inner>.*)\)\.\*")
_PLAIN = re.compile(r"\^?(?P<text>[A-Za-z0-9/_~%&=:;, -]*)")
_UNLESS_SIMPLE = ("\\b", "\\B", "(?m", "(?s", "(?i", "(?U")


def sample(pattern: str) -> str | None:
    """Return a short text that the whole pattern matches; None if none is found. The pattern must be valid."""
    low, _ = bounds(pattern)
    candidates = (looks_like(pattern), low.decode(errors="replace"))
    return next((text for text in candidates if matches(pattern, text)), None)


def looks_like(pattern: str) -> str:
    """Return a text that the pattern's author may have meant, without `^` and `$`; it need not match."""
    return _Reader(pattern).alternatives()


@functools.lru_cache(maxsize=4096)
def bounds(pattern: str) -> tuple[bytes, bytes]:
    """Return bounds (UTF-8) of all texts that the whole pattern matches; the widest bounds if RE2 reports none."""
    try:
        found = re2.compile(f"^(?:{pattern})$").possiblematchrange(_RANGE)
    except re2.error:
        return b"", b"\xff"
    low, high = found
    return low, high


def matches_nothing(pattern: str) -> bool:
    """Say whether it is certain that the pattern matches no text, as with `a$b`."""
    low, high = bounds(pattern)
    if low == high and not matches(pattern, low.decode(errors="replace")):
        return True
    prefixed = _PREFIXED.fullmatch(pattern)
    inner = prefixed["inner"] if prefixed else ""
    simple = not any(part in inner for part in _UNLESS_SIMPLE) and not fault(inner)
    return bool(inner) and simple and matches_nothing(inner)


def matches_no_path(pattern: str) -> bool:
    """Say whether it is certain that the pattern matches no path. Every path begins with a slash."""
    low, high = bounds(pattern)
    return high < b"/" or low >= b"0" or matches_nothing(pattern)


def matches_everything(pattern: str) -> bool:
    """Say whether it is certain that the pattern matches every path and every header value."""
    return pattern in _ANYTHING


def beginning(pattern: str) -> str | None:
    """Return the text of a pattern like `(?:text).*`; None for other patterns."""
    found = _PREFIXED.fullmatch(pattern)
    plain = _PLAIN.fullmatch(found["inner"]) if found else None
    return plain["text"] if plain else None


def always_begins(pattern: str, text: str) -> bool:
    """Say whether it is certain that all matches of the pattern begin with a text."""
    return all(bound.startswith(text.encode()) for bound in bounds(pattern))


class _Reader:
    """A parser that turns a pattern into a sample text. It uses the first alternative, and the fewest repetitions."""

    def __init__(self, pattern: str) -> None:
        self._rest = pattern

    def alternatives(self) -> str:
        first = self._sequence()
        while self._rest.startswith("|"):
            self._take()
            self._sequence()
        return first

    def _take(self, count: int = 1) -> str:
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def _sequence(self) -> str:
        found = ""
        while self._rest and self._rest[0] not in "|)":
            found += self._repeated(self._atom())
        return found

    def _atom(self) -> str:
        first = self._take()
        if first == "(":
            return self._group()
        if first == "[":
            return self._class()
        if first == "\\":
            return self._escape()
        return "" if first in "^$" else "a" if first == "." else first

    def _group(self) -> str:
        if self._rest.startswith("?"):
            head = re.match(r"\?(?:P?<\w+>|[imsU-]*:|[imsU-]*(?=\)))", self._rest)
            self._take(head.end() if head else 1)
        inner = self.alternatives()
        self._take()
        return inner

    def _class(self) -> str:
        found = re.match(r"\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", self._rest)
        text = self._take(found.end() if found else len(self._rest))
        return _one_of(f"[{text}")

    def _escape(self) -> str:
        kind = self._take()
        if kind in _EDGES:
            return ""
        if kind.isalnum():
            braces = re.match(r"\{[^}]*\}", self._rest)
            return _one_of(f"\\{kind}{self._take(braces.end() if braces and kind in 'pPx' else 0)}")
        return kind

    def _repeated(self, atom: str) -> str:
        times = 1
        if count := _REPEAT.match(self._rest):
            times = int(count[1])
            self._take(count.end())
        elif self._rest and self._rest[0] in "*?+":
            times = int(self._take() == "+")
        if self._rest.startswith("?"):  # a lazy repetition matches the same texts
            self._take()
        return atom * times


@functools.lru_cache(maxsize=1024)
def _one_of(characters: str) -> str:
    """Return a printable ASCII character that a class such as `[^a-z]` or an escape matches; empty if there is none."""
    if fault(characters):
        return ""
    return next((item for item in _CHARACTERS if matches(characters, item)), "")
