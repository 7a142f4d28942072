"""The output of commands: tables and documents on stdout, errors and notes on stderr, and the exit codes."""

import enum
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headgate.cli.table_layout import blocks, fit, printable_table, table_text, wrapped
from headgate.errors import HeadgateError, ProxyError, Unavailable
from headgate.formatting import json_text, printable

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_UNDECIDED = 4
EXIT_TIMED_OUT = 124
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130
EXIT_CLOSED_OUTPUT = 141  # 128 and the number of SIGPIPE, as for other programs
QUIET_S = 60.0  # Seconds between two printed log messages with the same reason.
_UNFOLDED = 10_000  # A width in columns that no table exceeds.
FINDING_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}
"""Styles of the severities of findings."""


class Format(enum.StrEnum):
    """The output format of a command."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class TimedOut(HeadgateError):
    """The awaited state was not reached before the timeout."""


class WrongUsage(HeadgateError):
    """An argument is invalid, for example an unknown kind or column."""

    code = EXIT_USAGE


class NotStarted(HeadgateError):
    """A program of the user can't be started because it does not exist or is not executable."""

    def __init__(self, message: str, reason: OSError) -> None:
        super().__init__(message)
        self.code = EXIT_NOT_FOUND if isinstance(reason, FileNotFoundError) else EXIT_NOT_EXECUTABLE


def exit_code(error: HeadgateError) -> int:
    """Return the exit code of a command that ends with an error."""
    if isinstance(error, NotStarted | WrongUsage):
        return error.code
    if isinstance(error, TimedOut):
        return EXIT_TIMED_OUT
    return EXIT_UNREACHABLE if isinstance(error, Unavailable | ProxyError) else EXIT_FAILURE


def fail(message: str) -> None:
    """Print an error on stderr."""
    console = stderr()
    console.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def note(message: str, console: Console | None = None) -> None:
    """Print a note on stderr, so that stdout stays readable for scripts. While a spinner turns, `console` is that of the spinner."""
    (console or stderr()).print(Text(message), soft_wrap=True)


def reason_in(record: logging.LogRecord) -> str:
    """Return the reason of a log message: its last argument, or the message itself when it has no arguments."""
    return str(record.args[-1]) if isinstance(record.args, tuple) and record.args else record.getMessage()


class OncePerReason(logging.Filter):
    """A filter that passes one log message for each reason in QUIET_S seconds.

    Without the filter, a full disk would cause a message for each failed write.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message passes."""
        reason = reason_in(record)
        self._shown = {seen: at for seen, at in self._shown.items() if record.created - at < QUIET_S}
        return self._shown.setdefault(reason, record.created) == record.created


class EndedCalls(logging.Filter):
    """A filter that drops gRPC's warnings about calls that ended with its server: the proxies call again, or have ended too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message passes."""
        return not (record.name.startswith("grpc.") and str(record.msg).endswith("due to server stop."))


class SafeConsole(Console):
    """A console that prints text as it is, without markup or highlighting. Control characters in texts are printed as escapes."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable. Those with control codes are the console's own."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave it to the command to end, once its tasks have ended."""
        raise BrokenPipeError


class PrintableFormatter(logging.Formatter):
    """Formats log messages for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message with control characters as escapes."""
        return printable(super().format(record))


def stdout(*, folds: bool = False) -> Console:
    """Return the console for stdout.

    On a terminal, table cells are folded to its width. Without a terminal a row is one line, for scripts, unless
    `folds` is set.
    """
    width = None if folds or sys.stdout.isatty() else _UNFOLDED
    return SafeConsole(width=width)


class FittedTable:
    """A table that breaks no word: where it is too narrow for its words, each row is a block of lines."""

    def __init__(self, table: Table) -> None:
        self._table = printable_table(table)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table, or the lines of its blocks."""
        if fit(self._table, options.max_width):
            yield self._table
        else:
            yield from map(Text, blocks(self._table, options.max_width))


class WrappedText:
    """A message that is wrapped between words, and breaks no word."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the lines."""
        yield from map(Text, wrapped(self._text, options.max_width))


def print_whole(console: Console, renderable: RenderableType) -> None:
    """Print wrapped texts and fitted tables. Only the terminal breaks words, those that are wider than itself."""
    console.print(renderable, overflow="ignore", crop=False)


def make_table(titles: Sequence[str], *, right: Collection[str] = (), gap: int = 2) -> Table:
    """Return a table without rows and lines. Columns with a title in `right` are right-aligned, `gap` is between columns."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print a table on stdout, fitted to a terminal. Without a terminal, each row is a line."""
    console = stdout()
    if console.is_terminal:
        print_whole(console, FittedTable(table))
    else:
        sys.stdout.write(table_text(table))


def stderr() -> Console:
    """Return the console for stderr: errors, notes and progress."""
    return SafeConsole(stderr=True)


def yaml_text(value: Any) -> str:
    """Return a value as a YAML document, with the fields in the order of the value."""
    import yaml  # most commands print no YAML, and the import costs start-up time

    return str(
        yaml.dump(msgspec.to_builtins(value), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)
    )


def answer(value: Any, output: Format, show: Callable[[], object] = lambda: None) -> None:
    """Print a value in an output format: `show` prints the table, JSON is indented."""
    if output is Format.TABLE:
        show()
    elif output is Format.YAML:
        sys.stdout.write(yaml_text(value))
    else:
        sys.stdout.write(json_text(value))


def usage_error(message: str, *, option: str) -> typer.BadParameter:
    """Return the usage error (exit code 2) for an invalid argument; `option` is its name on the command line."""
    return typer.BadParameter(message, param_hint=f"'{option}'")
