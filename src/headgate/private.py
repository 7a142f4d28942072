"""Files that only their owner may read, written all at once."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600: all of it, or nothing when the process ends meanwhile.

    Raises OSError whose `filename` is the path.
    """
    try:
        _write(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a write that fails names no file


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
