"""Files that only their owner may read, written all at once, and read back by the next headgate."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600: all of it, or nothing when the process ends meanwhile.

    Raises OSError whose `filename` is the path.
    """
    try:
        _write(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a write that fails names no file


def read_record(path: Path, shape: type[T]) -> T | None:
    """Return what an earlier headgate wrote in JSON; None where there is nothing, or nothing of that shape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
