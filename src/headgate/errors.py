"""The errors that headgate raises on purpose (ARCHITECTURE.md, rule 4).

A user's mistake is a `Cause` inside `Invalid` or `DecodeError`; the compiler reports it as a `Finding`. Failures of the
environment raise `StoreError`, `ProxyError` or `TelemetryError`. Every other exception is a bug.
"""

import re
from typing import NamedTuple


class HeadgateError(Exception):
    """The base class of headgate's errors."""


class Cause(NamedTuple):
    """One mistake in an object. `field` is its path (`spec.backends[0].weight`), or empty for the whole object."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class DecodeError(HeadgateError):
    """An object can't be decoded; `causes` has one entry for each wrong field."""

    def __init__(self, *causes: Cause) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = causes


class StoreError(HeadgateError):
    """A read or write of the object store failed."""


class NotFound(StoreError):
    """The object does not exist."""


class OutsideMesh(NotFound):
    """The object is in a namespace that does not belong to the mesh. The message says so to users."""


class AlreadyExists(StoreError):
    """An object of this kind and name already exists."""


class Conflict(StoreError):
    """The object changed since it was read. Read it again and retry."""


class Gone(StoreError):
    """The requested resource version has expired. List again, and watch from the version of that list."""


class Invalid(StoreError):
    """The object is not valid for its kind; `causes` has one entry for each wrong field."""

    def __init__(self, *causes: Cause) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = causes


class TooLarge(StoreError):
    """The object is larger than the store accepts."""


class Unavailable(StoreError):
    """The store can't be reached at the moment. Retry."""


class Denied(Unavailable):
    """The store denies the request because of a permission, a quota or a policy. Retry: each of them may change."""


class ProxyError(HeadgateError):
    """A proxy can't be started or reached."""


class TelemetryError(HeadgateError):
    """Traffic metrics are not available; the message says why."""


class NoCounts(TelemetryError):
    """There are no counts of the requested time. The message says of which times there are."""


def expected_failure(error: BaseException) -> OSError | StoreError | None:
    """Return the OSError or StoreError behind an error; None if the error is a bug.

    For an exception group, return the first of its failures; None if any exception in the group is a bug.
    """
    every = single_errors(error)
    failures = [single for single in every if isinstance(single, OSError | StoreError)]
    return failures[0] if len(failures) == len(every) else None


def single_errors(error: BaseException) -> tuple[BaseException, ...]:
    """Return the errors of an exception group and of the groups in it, in order; of another error the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(single for part in error.exceptions for single in single_errors(part))
    return (error,)


_NUMBERS = {"int": "a whole number", "float": "a number"}


def usage_message(formatted: str) -> str:
    """Rewrite typer's message about a wrong argument: remove `Value error`, replace `a valid int` by words."""
    plain = formatted.replace(": Value error, ", ": ", 1)
    return re.sub(r"a valid (int|float)(?: range)?\b", lambda match: _NUMBERS[match[1]], plain)
