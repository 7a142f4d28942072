"""nginx's configuration language: quoted parameters, blocks, and variables that are defined once."""

import re
from collections.abc import Iterable, Iterator, Sequence

DOLLAR = "headgate_dollar"
_LONGEST = 60
"""Variables in one parameter: nginx reads parameters of up to 4 kB."""


def escaped(text: str) -> str:
    """Return a text for templates. nginx has no escape for `$`, so a variable contains it.

    Raises ValueError for a line break: it would begin another header, so routes with one are not accepted.
    """
    if "\n" in text or "\r" in text:
        raise ValueError(f"{text!r} has a line break")
    return text.replace("$", f"${{{DOLLAR}}}")


def literal(text: str) -> str:
    """Return a parameter with exactly this text."""
    return template(escaped(text))


def template(text: str) -> str:
    """Return a parameter in which nginx replaces variables."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def pattern(regex: str) -> str:
    """Return the parameter of a `map` that matches a regular expression, case-sensitively."""
    return template(f"~{regex}")


def exactly(text: str) -> str:
    """Return the parameter of a `map` that matches exactly this text; a plain parameter ignores the case."""
    return pattern(rf"\A{re.escape(text)}\z")


def block(head: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a block."""
    yield f"{head} {{"
    yield from (f"    {line}" for line in lines)
    yield "}"


class Variables:
    """The variables of a configuration by `map` and `split_clients`. Equal definitions are one variable."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        self._lines: list[str] = []

    def mapped(self, stem: str, source: str, entries: Sequence[tuple[str, str]], default: str = '""') -> str:
        """Return the variable with the value of the first entry (parameter, value) that matches `source`."""
        lines = [f"{key} {value}".rstrip() + ";" for key, value in entries]
        return self._defined(stem, f"map {template(source)}", [*lines, f"default {default};"])

    def drawn(self, stem: str, parts: Sequence[tuple[int, str]], rest: str) -> str:
        """Return the variable with a random value: parts of 10 000 with their values, and the rest."""
        lines = [f"{number // 100}.{number % 100:02}% {value};" for number, value in parts if number]
        salt = f"$request_id {stem} {len(self._names)}"  # draws of one request are independent
        return self._defined(stem, f"split_clients {template(salt)}", [*lines, f"* {rest};"])

    def joined(self, variables: Sequence[str]) -> str:
        """Return a source with the values of all variables, by further variables when there are many."""
        if len(variables) <= _LONGEST:
            return "".join(variables)
        parts = [variables[start : start + _LONGEST] for start in range(0, len(variables), _LONGEST)]
        return self.joined([self.mapped("bits", "", (), template("".join(part))) for part in parts])

    def lines(self) -> Iterator[str]:
        """Yield the definitions."""
        yield from block(f"geo ${DOLLAR}", ['default "$";'])
        yield from self._lines

    def _defined(self, stem: str, head: str, lines: Sequence[str]) -> str:
        key = (head, *lines)
        if key not in self._names:
            self._names[key] = f"$headgate_{stem}_{len(self._names) + 1}"
            self._lines += block(f"{head} {self._names[key]}", lines)
        return self._names[key]
