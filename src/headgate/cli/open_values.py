"""Decode the responses of a control plane whose version may be newer: it may have values that this version does not know.

In the types of `resources.inspect`, a `Literal` or an enum has all values of this version. A new severity, state or reason
must not end an older command, which shows it as its text.
"""

import enum
import functools
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

T = TypeVar("T")


def with_open_values(response: object, shape: type[T]) -> T:
    """Return a decoded response. Each unknown value of a `Literal` is a text; that of an enum has it as its value and name.

    Raises ValidationError.
    """
    try:
        return msgspec.convert(response, shape)
    except msgspec.ValidationError:  # open types cost some milliseconds, so only a newer response needs them
        closed: Any = shape
        decoded: T = msgspec.convert(response, _open(closed), dec_hook=_member)
        return decoded


class _OpenEnum(type):
    """The type of placeholders for enums in open types: msgspec passes a text for one to `_member`, and accepts the result."""

    values: type[enum.Enum]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.values)


def _member(placeholder: Any, text: Any) -> Any:
    """Return the member of an enum for a value; for an unknown value a member that only this response has."""
    values: Any = placeholder.values
    try:
        return values(text)
    except ValueError:
        if not isinstance(text, str):
            raise
        unknown = str.__new__(values, text) if issubclass(values, str) else object.__new__(values)
        unknown._name_ = unknown._value_ = text
        return unknown


def _open(hint: Any) -> Any:
    """Return a type that accepts every text in place of the values of an enum or of a `Literal`."""
    origin, arguments = get_origin(hint), get_args(hint)
    opened = hint
    if isinstance(hint, enum.EnumMeta):
        opened = _OpenEnum(hint.__name__, (), {"values": hint})
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        opened = _open_struct(hint)
    elif origin is Literal:
        opened = str
    elif origin is Annotated:
        opened = Annotated[_open(arguments[0]), *hint.__metadata__]
    elif origin in (Union, UnionType):
        opened = Union[tuple(map(_open, arguments))]  # noqa: UP007 - the members are only known here
    elif origin is tuple:
        opened = tuple[tuple(map(_open, arguments))]  # type: ignore[misc]
    elif origin in (dict, Mapping):
        opened = dict[tuple(map(_open, arguments))]  # type: ignore[misc]
    return opened


@functools.cache
def _open_struct(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a subclass whose fields have open types; the same type if none of its fields has closed values."""
    hints = get_type_hints(shape, include_extras=True)
    fields = {field.name: field for field in structs.fields(shape) if _open(hints[field.name]) != hints[field.name]}
    if not fields:
        return shape
    with_default: Any = msgspec.field
    defaults = {
        name: with_default(default=field.default, default_factory=field.default_factory)
        for name, field in fields.items()
        if not field.required
    }
    opened = {name: _open(hints[name]) for name in fields}
    create: Any = type(msgspec.Struct)
    content = {"__annotations__": opened, "__module__": shape.__module__, **defaults}
    subclass: type[msgspec.Struct] = create(shape.__name__, (shape,), content, kw_only=True)
    return subclass
