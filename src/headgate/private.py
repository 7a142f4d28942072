"""Files that only their owner may read, written all at once."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600: all of it, or nothing when the process ends meanwhile."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
