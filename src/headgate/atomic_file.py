"""State files: written atomically with mode 0600, and read back as JSON by the next headgate process."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def write_private(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file of mode 0600 atomically: if the process or the machine dies, the old or the new content remains.

    Without `durable`, the content may be lost with the machine: for files about processes, which end with it too, and
    run again. Waiting for the disk takes milliseconds, in which the event loop does nothing else, and 60 pods have 300 such files.
    Raises OSError with the path as `filename`.
    """
    try:
        _write(path, content, durable=durable)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write() sets no filename


def read_json(path: Path, shape: type[T]) -> T | None:
    """Read a JSON file as a value of type `shape`; None if it is missing, unreadable or of another shape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError):
        return None


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, content: bytes, *, durable: bool) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates the file with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())  # else a crash of the machine may leave an empty file under the new name
        Path(name).replace(path)
        if durable:
            _sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
