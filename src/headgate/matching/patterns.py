"""Parse regular expressions in RE2 syntax to expressions whose derivatives can be computed.

RE2 itself says which characters a class or an escape matches, so this parser needs to know only where they end.
"""

import functools
import re
from itertools import takewhile

from headgate.matching.regular import Algebra, Expression, looks_like
from headgate.matching.undecided import Undecided
from headgate.resources.regexes import bounds, fault, matches

_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\[pP]\{[^}]*\}|\\.|[^\]\\])*\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[pP](?:\{[^}]*\}|.)|x(?:\{[^}]*\}|[0-9A-Fa-f]{2})|[0-7]{1,3}|.)", re.DOTALL)
_GROUP = re.compile(r"\?(?:P?<\w+>|(?P<on>[imsU]*)(?P<off>-[imsU]+)?(?P<end>[:)]))")
_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_QUOTED = re.compile(r"\\Q(?P<text>.*?)(?:\\E|$)", re.DOTALL)
_EDGES = {"\\A": "^", "\\z": "$", "\\b": "b", "\\B": "B"}
_CODES = range(128)
_RANGE = 256  # the maximum length in bytes of each bound of RE2's match range
_PREFIXED = re.compile(r"\(\?:\^?(?P<text>[A-Za-z0-9/_~%&=:;, -]*)\)\.\*")
_ANYTHING = frozenset((".*", "^.*", ".*$", "^.*$", "(?:.*).*", "(?:^.*).*"))


@functools.lru_cache(maxsize=4096)
def characters(token: str, flags: str) -> int:
    """Return the ASCII characters that a character, a class or an escape matches. Raises Undecided for other texts."""
    pattern = f"(?{flags}){token}" if flags else token
    if fault(pattern):
        raise Undecided
    mask = sum(1 << code for code in _CODES if matches(pattern, chr(code)))
    if not mask and bounds(pattern, _RANGE)[1]:  # it matches other characters, such as letters with accents
        raise Undecided
    return mask


@functools.lru_cache(maxsize=16384)
def common_start(pattern: str) -> str:
    """Return the text with which all matches of a pattern begin: what the bounds of its matches have in common.

    It ends before the first byte that is not UTF-8, such as the first byte of characters that differ.
    """
    low, high = bounds(pattern, _RANGE)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False))
    start = bytes(byte for byte, _ in same)
    try:
        return start.decode()
    except UnicodeDecodeError as error:
        return start[: error.start].decode()


def beginning(pattern: str) -> str | None:
    """Return the text with which exactly the matches of a pattern begin, as `(?:text).*`; None for other patterns."""
    if pattern in _ANYTHING:
        return ""
    prefixed = _PREFIXED.fullmatch(pattern)
    return prefixed["text"] if prefixed else None


@functools.lru_cache(maxsize=4096)
def intended(pattern: str) -> str:
    """Return a text that the author of a pattern may have meant; it need not match. Empty for unknown syntax."""
    try:
        return looks_like(Parser(Algebra(), pattern).parse())
    except Undecided:
        return ""


def sample(pattern: str) -> str | None:
    """Return a short text that the whole pattern matches; None if none is found. The pattern must be valid."""
    candidates = (intended(pattern), bounds(pattern, _RANGE)[0].decode(errors="replace"))
    return next((text for text in candidates if matches(pattern, text)), None)


class Parser:
    """A parser of one valid pattern. Assertions about lines are assertions about the text, which has one line."""

    def __init__(self, algebra: Algebra, pattern: str) -> None:
        self._algebra = algebra
        self._pattern = pattern
        self._at = 0
        self._ignores_case = False

    def parse(self) -> Expression:
        """Return the expression. Raises Undecided for syntax that this parser does not know."""
        expression = self._alternatives()
        if self._at < len(self._pattern):
            raise Undecided
        return expression

    def _alternatives(self) -> Expression:
        outer, alternatives = self._ignores_case, [self._sequence()]
        while self._next_is("|"):
            self._at += 1
            alternatives.append(self._sequence())
        self._ignores_case = outer
        return self._algebra.any_of(alternatives)

    def _next_is(self, text: str | tuple[str, ...]) -> bool:
        return self._pattern.startswith(text, self._at)

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if quoted := _QUOTED.match(self._pattern, self._at):
                self._at = quoted.end()
                parts += [self._characters(re.escape(character)) for character in quoted["text"]]
                if parts:
                    parts.append(self._repeated(parts.pop()))
            else:
                parts.append(self._repeated(self._atom()))
        result = self._algebra.epsilon
        for part in reversed(parts):
            result = self._algebra.join(part, result)
        return result

    def _characters(self, token: str) -> Expression:
        return self._algebra.chars(characters(token, "is" if self._ignores_case else "s"))

    def _atom(self) -> Expression:
        first = self._pattern[self._at]
        if first == "(":
            return self._group()
        if first in "^$":
            self._at += 1
            return self._algebra.edge(first)
        reader = {"[": _CLASS, "\\": _ESCAPE}.get(first)
        token = reader.match(self._pattern, self._at) if reader else None
        if reader and not token:
            raise Undecided
        text = token[0] if token else first
        self._at += len(text)
        if text in _EDGES:
            return self._algebra.edge(_EDGES[text])
        return self._characters(text if token or text == "." else re.escape(text))

    def _group(self) -> Expression:
        self._at += 1
        head = _GROUP.match(self._pattern, self._at)
        if head is None and self._next_is("?"):
            raise Undecided
        self._at = head.end() if head else self._at
        outer = self._ignores_case
        if head and head["end"]:
            self._ignores_case = (outer or "i" in head["on"]) and "i" not in (head["off"] or "")
            if head["end"] == ")":  # flags for the rest of the enclosing group
                if self._next_is(("*", "+", "?", "{")):  # a repetition of the item before the flags
                    raise Undecided
                return self._algebra.epsilon
        expression = self._alternatives()
        self._ignores_case = outer
        if not self._next_is(")"):
            raise Undecided
        self._at += 1
        return expression

    def _repeated(self, expression: Expression) -> Expression:
        while self._at < len(self._pattern):
            count = _COUNT.match(self._pattern, self._at)
            if count:
                least = int(count[1])
                expression = self._algebra.repeat(
                    expression, least, int(count[3]) if count[3] else None if count[2] else least
                )
                self._at = count.end()
            elif self._pattern[self._at] in "*+?":
                sign = self._pattern[self._at]
                expression = self._algebra.repeat(expression, int(sign == "+"), 1 if sign == "?" else None)
                self._at += 1
            else:
                break
            if self._next_is("?"):  # a lazy repetition matches the same texts
                self._at += 1
        return expression
