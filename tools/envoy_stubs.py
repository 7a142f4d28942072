"""Generate typed stubs for protobuf descriptors, with keyword-only constructors and typed fields (ADR 0001)."""

import keyword
from collections.abc import Iterator, Mapping
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

HEADER = '''\
"""Types of Envoy's messages. Written by tools/envoy_messages.py; do not edit."""

import builtins
from collections.abc import Iterable, Mapping
from typing import ClassVar

from google.protobuf.internal import well_known_types
from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)
from google.protobuf.message import Message

import headgate.envoy.pb as pb

def type_url(message: type[Message] | Message) -> str: ...
def pack(message: Message) -> pb.Any: ...

class _Enum(builtins.int):
    @classmethod
    def Name(cls, number: builtins.int) -> builtins.str: ...
    @classmethod
    def Value(cls, name: builtins.str) -> builtins.int: ...
'''

Field = FieldDescriptorProto
SCALARS: Final = {
    Field.TYPE_DOUBLE: "float",
    Field.TYPE_FLOAT: "float",
    Field.TYPE_BOOL: "bool",
    Field.TYPE_STRING: "str",
    Field.TYPE_BYTES: "bytes",
}
MIXINS: Final = {"Any", "Duration", "ListValue", "Struct", "Timestamp"}
"""Messages to which protobuf adds methods (`well_known_types`)."""


class _Writer:
    """A generator of the stub; `flat` maps full message names to names in the stub."""

    def __init__(self, files: FileDescriptorSet, names: Mapping[str, str]) -> None:
        self.flat = {full: flat for flat, full in names.items()}
        self.entries: dict[str, DescriptorProto] = {}
        for file in files.file:
            for message in file.message_type:
                self._name(f"{file.package}.{message.name}", message)
            for enum in file.enum_type:
                self._top(f"{file.package}.{enum.name}")

    def _top(self, full: str) -> None:
        """Choose a type's name: private if `names` lacks the type, so that code can read but not construct it."""
        self.flat.setdefault(full, "_" + full.removeprefix("envoy.").replace(".", "_"))

    def _name(self, full: str, message: DescriptorProto) -> None:
        self._top(full)
        for inner in message.nested_type:
            if inner.options.map_entry:
                self.entries[f"{full}.{inner.name}"] = inner
            else:
                self.flat.setdefault(f"{full}.{inner.name}", f"{self.flat[full]}.{inner.name}")
                self._name(f"{full}.{inner.name}", inner)
        for enum in message.enum_type:
            self.flat.setdefault(f"{full}.{enum.name}", f"{self.flat[full]}.{enum.name}")

    def type(self, field: FieldDescriptorProto) -> str:
        """Return the type of one value of a field."""
        if field.type_name:
            return f"pb.{self.flat[field.type_name[1:]]}"
        return f"builtins.{SCALARS.get(field.type, 'int')}"

    def argument(self, field: FieldDescriptorProto) -> str:
        """Return the type of a field in the constructor."""
        entry = self.entries.get(field.type_name[1:])
        if entry:
            return f"Mapping[{self.type(entry.field[0])}, {self.type(entry.field[1])}]"
        return f"Iterable[{self.type(field)}]" if _repeated(field) else self.type(field)

    def attribute(self, field: FieldDescriptorProto) -> Iterator[str]:
        """Yield the lines that declare a field; a repeated or message field can't be assigned, so it is a property."""
        if not _repeated(field) and not _is_message(field):
            yield f"{field.name}: {self.type(field)}"
            return
        yield "@property"
        yield f"def {field.name}(self) -> {self._read(field)}: ..."

    def _read(self, field: FieldDescriptorProto) -> str:
        entry = self.entries.get(field.type_name[1:])
        if entry:
            container = "MessageMap" if _is_message(entry.field[1]) else "ScalarMap"
            return f"{container}[{self.type(entry.field[0])}, {self.type(entry.field[1])}]"
        if not _repeated(field):
            return self.type(field)
        container = "RepeatedCompositeFieldContainer" if _is_message(field) else "RepeatedScalarFieldContainer"
        return f"{container}[{self.type(field)}]"

    def message(self, full: str, message: DescriptorProto) -> Iterator[str]:
        """Yield the lines of a message's class with its nested classes."""
        fields = [field for field in message.field if not keyword.iskeyword(field.name)]
        yield f"class {self.flat[full].rpartition('.')[2]}({_bases(full)}):"
        for enum in message.enum_type:
            yield from _indent(self.enum(f"{full}.{enum.name}", enum))
            for value in _values(enum):
                yield f"    {value}: ClassVar[pb.{self.flat[f'{full}.{enum.name}']}]"
        for inner in message.nested_type:
            if f"{full}.{inner.name}" not in self.entries:
                yield from _indent(self.message(f"{full}.{inner.name}", inner))
        for field in fields:
            yield from _indent(self.attribute(field))
        arguments = "".join(f", {field.name}: {self.argument(field)} | None = None" for field in fields)
        this = "self_" if any(field.name == "self" for field in fields) else "self"
        yield f"    def __init__({this}{', *' if fields else ''}{arguments}) -> None: ..."

    def enum(self, full: str, enum: EnumDescriptorProto) -> Iterator[str]:
        """Yield the lines of an enum's class, which distinguishes its values from those of other enums."""
        name = self.flat[full]
        yield f"class {name.rpartition('.')[2]}(_Enum):"
        for value in _values(enum):
            yield f"    {value}: ClassVar[pb.{name}]"


def stubs(files: FileDescriptorSet, names: Mapping[str, str]) -> str:
    """Return the text of `pb.pyi`; `names` maps names in the stub to full names."""
    writer = _Writer(files, names)
    lines: list[str] = []
    for file in files.file:
        for enum in file.enum_type:
            lines += ["", *writer.enum(f"{file.package}.{enum.name}", enum)]
        for message in file.message_type:
            lines += ["", *writer.message(f"{file.package}.{message.name}", message)]
    return HEADER + "\n".join(lines) + "\n"


def _bases(full: str) -> str:
    package, _, name = full.rpartition(".")
    mixin = package == "google.protobuf" and name in MIXINS
    return f"Message, well_known_types.{name}" if mixin else "Message"


def _values(enum: EnumDescriptorProto) -> list[str]:
    return [value.name for value in enum.value if not keyword.iskeyword(value.name)]


def _repeated(field: FieldDescriptorProto) -> bool:
    return field.label == Field.LABEL_REPEATED


def _is_message(field: FieldDescriptorProto) -> bool:
    return field.type == Field.TYPE_MESSAGE


def _indent(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
