"""The rows of the store's database: their checksums, and the damaged ones, which are kept in files beside the database.

SQLite finds damaged pages, but no changed bytes inside a row. So each row has a checksum of its key and its content.
"""

import re
import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from headgate.atomic_file import write_private
from headgate.errors import DecodeError
from headgate.resources.meta import Key, Object
from headgate.resources.registry import find
from headgate.resources.versions import to_hub

DIRECTORY = "damaged-objects"
"""The directory of damaged rows, beside the database."""
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")


class StoredRow(NamedTuple):
    """A row as bytes: the parts of its key, the JSON of its object, and its checksum."""

    group: bytes
    kind: bytes
    namespace: bytes
    name: bytes
    body: bytes
    checksum: int

    @property
    def key(self) -> Key:
        """The key, with escapes for bytes and characters that a terminal may not show."""
        return Key(*(ascii(part.decode(errors="backslashreplace"))[1:-1] for part in self[:4]))


class DamagedRow(Exception):
    """The row is not what headgate wrote. The message says what is wrong with it."""


def checksum(*columns: bytes | str) -> int:
    """Return the checksum of a row, from the parts of its key and its content."""
    return zlib.crc32(b"\0".join([column.encode() if isinstance(column, str) else column for column in columns]))


def read_object(row: StoredRow) -> Object:
    """Return the object in a row, in hub version: an older headgate may have stored another one. Raises DamagedRow."""
    try:
        obj: Object = msgspec.json.decode(row.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedRow(f"its content is not JSON ({error})") from error
    if checksum(*row[:5]) != row.checksum:
        raise DamagedRow("its content differs from what headgate wrote (by its checksum)")
    try:
        metadata = obj["metadata"]
        key = obj["kind"].encode(), metadata.get("namespace", "").encode(), metadata["name"].encode()
        complete = key == row[1:4] and metadata["uid"] and int(metadata["resourceVersion"])
    except (KeyError, TypeError, ValueError, AttributeError):  # a row that was damaged before rows had checksums
        complete = False
    if not complete:
        raise DamagedRow("its content is another object or lacks metadata")
    kind = find(row.key.group, row.key.kind)
    if kind is None or obj.get("apiVersion") == kind.hub:
        return obj
    try:
        return to_hub(obj)
    except DecodeError as error:
        raise DamagedRow(f"its version can't be read ({error})") from error


def keep_aside(database: Path, row: StoredRow, fault: DamagedRow) -> str:
    """Write a damaged row to a file of mode 0600 in `DIRECTORY`; return the message for users. Raises OSError."""
    path = database.parent / DIRECTORY / _file_name(row)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, row.body)
    kind = find(row.key.group, row.key.kind)
    consequence = f" {kind.loss}" if kind and kind.loss else ""
    return (
        f"The object {row.key} in the store is damaged: {fault}. headgate runs without it and keeps its content in {path}: "
        f"write the object again (kubectl apply), then delete the file.{consequence}"
    )


def kept_aside(database: Path) -> tuple[Path, ...]:
    """Return the files with damaged rows, sorted."""
    return tuple(sorted((database.parent / DIRECTORY).glob("*.json")))


def _file_name(row: StoredRow) -> str:
    """Return the name of a row's file, such as `ConfigMap_shop_settings_5d41402a.json`."""
    key = row.key
    words = (_UNSAFE.sub("_", part)[:60] for part in (key.kind, key.namespace, key.name) if part)
    return f"{'_'.join(words)}_{checksum(*row[:5]):08x}.json"
