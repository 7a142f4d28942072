"""What commands print: tables and documents on stdout, errors in a line or two on stderr; and their exit codes."""

import enum
import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from headgate.compiler.reasons import Severity
from headgate.errors import HeadgateError, ProxyError, Unavailable

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_TIMED_OUT = 124
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130
QUIET_S = 60.0
_UNFOLDED = 10_000
FINDING_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


class Format(enum.StrEnum):
    """How a command answers: for people, or for scripts."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class TimedOut(HeadgateError):
    """What was waited for did not happen in time."""


class NotStarted(HeadgateError):
    """A program of the user can't be started: it does not exist, or it is not executable."""

    def __init__(self, message: str, reason: OSError) -> None:
        super().__init__(message)
        self.code = EXIT_NOT_FOUND if isinstance(reason, FileNotFoundError) else EXIT_NOT_EXECUTABLE


def exit_code(error: HeadgateError) -> int:
    """Return the exit code that an error ends a command with."""
    if isinstance(error, NotStarted):
        return error.code
    if isinstance(error, TimedOut):
        return EXIT_TIMED_OUT
    return EXIT_UNREACHABLE if isinstance(error, Unavailable | ProxyError) else EXIT_NO


def fail(message: str) -> None:
    """Print an error for the user on stderr."""
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def note(message: str) -> None:
    """Print a remark on stderr, where it does not disturb what a script reads."""
    stderr().print(Text(message), soft_wrap=True)


class OncePerReason(logging.Filter):
    """Lets one message a minute pass for each reason: a full disk stops many objects, and is one thing to mend.

    The reason is the last argument of a message, or the message itself where it has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the message is shown."""
        reason = str(record.args[-1]) if isinstance(record.args, tuple) and record.args else record.getMessage()
        self._shown = {known: at for known, at in self._shown.items() if record.created - at < QUIET_S}
        return self._shown.setdefault(reason, record.created) == record.created


def stdout(*, folds: bool = False) -> Console:
    """Return the console for answers. Words are never taken for markup or emphasised by guess.

    A table's cells are folded on a terminal; elsewhere, where a script reads a row as a line, only with `folds`.
    """
    width = None if folds or sys.stdout.isatty() else _UNFOLDED
    return Console(highlight=False, markup=False, emoji=False, width=width)


def stderr() -> Console:
    """Return the console for errors and progress."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def yaml_text(value: Any) -> str:
    """Return a value as a YAML document, fields in their own order."""
    import yaml  # noqa: PLC0415 - most commands print none, and it costs start-up time

    return str(
        yaml.dump(msgspec.to_builtins(value), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)
    )


def answer(value: Any, output: Format, show: Callable[[], object] = lambda: None) -> None:
    """Answer as asked: with a table, which `show` prints, or with the value as indented JSON or as YAML."""
    if output is Format.TABLE:
        show()
    elif output is Format.YAML:
        sys.stdout.write(yaml_text(value))
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def usage_error(message: str, *, option: str) -> typer.BadParameter:
    """Return the error for an argument that can't be used; exits with 2. `option` is what the user typed."""
    return typer.BadParameter(message, param_hint=f"'{option}'")
