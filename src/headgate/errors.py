"""What can go wrong, named by what the caller can do about it (ARCHITECTURE.md, errors).

A user's mistake is a value (a `Cause` inside `Invalid` or `DecodeError`, later a `Finding`); the world's failures are
the `StoreError` and `ProxyError` trees; everything else is a bug.
"""

import re
from typing import NamedTuple


class HeadgateError(Exception):
    """Base of every error that headgate raises on purpose."""


class Cause(NamedTuple):
    """One mistake in an object: `field` is the path as the user wrote it (`spec.backends[0].weight`)."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class DecodeError(HeadgateError):
    """An object's content can't be used; `causes` names every field that is wrong."""

    def __init__(self, *causes: Cause) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = causes


class StoreError(HeadgateError):
    """The store did not do what was asked."""


class NotFound(StoreError):
    """The object does not exist."""


class AlreadyExists(StoreError):
    """An object of that name exists."""


class Conflict(StoreError):
    """The object changed since it was read: read it again and repeat."""


class Gone(StoreError):
    """The revision asked for is no longer kept: list again and watch from there."""


class Invalid(StoreError):
    """The object breaks a rule; `causes` names every field that does."""

    def __init__(self, *causes: Cause) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = causes


class Unavailable(StoreError):
    """The store can't be reached now: try again."""


class ProxyError(HeadgateError):
    """A proxy can't be started or reached."""


class TelemetryError(HeadgateError):
    """Nothing can be said about traffic now; the message says why."""


def refusal(error: BaseException) -> OSError | StoreError | None:
    """Return what the disk or the store refused; None when the error, or any part of a group of errors, is a bug."""
    if isinstance(error, BaseExceptionGroup):
        parts = [refusal(part) for part in error.exceptions]
        return parts[0] if all(parts) else None
    return error if isinstance(error, OSError | StoreError) else None


_NUMBERS = {"int": "a whole number", "float": "a number"}


def usage_message(formatted: str) -> str:
    """Return typer's message about a wrong argument, without the words of its validation library and its types."""
    plain = formatted.replace(": Value error, ", ": ", 1)
    return re.sub(r"a valid (int|float)(?: range)?\b", lambda found: _NUMBERS[found[1]], plain)
