"""The end of a command whose reader has closed the output, as in `headgate up -o json | head -1`."""

import contextlib
import os
import select
import sys
from collections.abc import Iterator

import typer

from headgate.cli.output import EXIT_CLOSED_OUTPUT
from headgate.errors import single_errors


@contextlib.contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """Write all output, and end without a message once the reader of stdout or stderr has closed it.

    Raises `typer.Exit` then. Python ignores SIGPIPE, so a write raises BrokenPipeError, in tasks as part of a group. Other
    pipes that break, such as that to a container, are errors.
    """
    try:
        try:
            yield
        finally:
            _flush()
    except (BrokenPipeError, BaseExceptionGroup) as error:
        if not all(isinstance(single, BrokenPipeError) for single in single_errors(error)) or not _silence():
            raise
        raise typer.Exit(EXIT_CLOSED_OUTPUT) from None


def _flush() -> None:
    """Write what is left of the output. Leave other errors than a closed pipe, such as a full disk, to the end of the process."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError):
        return


def _silence() -> bool:
    """Discard what is written to closed streams from now on, also when the interpreter ends; return whether one is closed."""
    closed = [number for number in (1, 2) if _has_no_reader(number)]
    for number in closed:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    return bool(closed)


def _has_no_reader(number: int) -> bool:
    """Return whether a file descriptor is a pipe or a socket whose other end is closed."""
    poll = select.poll()
    poll.register(number, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
