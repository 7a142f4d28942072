"""State files: written atomically with mode 0600, and read back as JSON by the next headgate process."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 atomically: if the process dies during the write, the old content remains.

    Raises OSError with the path as `filename`.
    """
    try:
        _write(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write() sets no filename


def read_json(path: Path, shape: type[T]) -> T | None:
    """Read a JSON file as a value of type `shape`; None if it is missing, unreadable or of another shape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates the file with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
