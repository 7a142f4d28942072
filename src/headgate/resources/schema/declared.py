"""Schemas and checks from the types of objects: a field is declared once, with its description, grammar and limits.

`Annotated[str, Field("The ServiceAccount's name.", grammar="subdomain")]` declares a field of an `Input`. The CRD, OpenAPI and
`kubectl explain` have its schema. A `FieldRule` of a type is evaluated by API servers as CEL and by headgate as Python, with
the same message.
"""

import builtins
import functools
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import structs

from headgate.errors import Cause
from headgate.resources.meta import Input, rows
from headgate.resources.schema.builders import (
    Schema,
    choice,
    flag,
    listing,
    matching,
    record,
    ruled,
    text,
    whole,
    words,
)

RULES = "__rules__"
_EMPTY: tuple[object, ...] = (None, "", ())


class BrokenAt(NamedTuple):
    """A place where a rule is broken: the position in the list of a rule about `steps[].share`, and how the message goes on."""

    position: int = 0
    detail: str = ""


class FieldRule(NamedTuple):
    """A rule about the fields of an object: it is broken if the CEL expression `cel` is false, or `broken` is true.

    `broken` may also return the places where the rule is broken; none if it is not. `message` follows the path of the
    `field` that breaks it: `interval`, `steps[].share`, or empty for the object itself.
    """

    field: str
    message: str
    cel: str
    broken: Callable[[Mapping[str, Any]], bool | Iterable[BrokenAt]]


class Field(msgspec.Struct, frozen=True):
    """What the schema of a field has besides its type, which is that of the annotated field.

    `grammar` is the format of a text, `pattern` its regular expression, and `choices` has its only values. `key` names the
    fields that identify the items of a list (`builders.listing`), and `item` describes an item. `limits` has those of the
    type, such as minItems. A field without a default is required, and so is one with `required`. `schema` replaces
    everything that would derive from the type.
    """

    description: str = ""
    grammar: str = ""
    pattern: str = ""
    choices: tuple[str, ...] = ()
    key: str = ""
    item: "Field | None" = None
    limits: Mapping[str, int] = {}
    required: bool = False
    schema: Schema | None = None


class StatusPart(Input, frozen=True, kw_only=True):
    """The base class for parts of statuses: every field that headgate writes there is a field of such a type.

    In the schema, fields without `required` are optional and have no default: statuses of earlier versions stay valid.
    """


def declared_schema(shape: type[msgspec.Struct], description: str) -> Schema:
    """Return the schema for objects of a type, with the rules of the type."""
    required = [
        own.encode_name
        for own in _fields(shape)
        if _declaration(shape, own.name).required or (own.required and not issubclass(shape, StatusPart))
    ]
    properties = {own.encode_name: field_schema(shape, own.name) for own in _fields(shape)}
    return with_rules(record(description, " ".join(required), **properties), _rules(shape))


def with_rules(schema: Schema, rules: Collection[FieldRule]) -> Schema:
    """Return the schema of an object with further rules."""
    texts = [(rule.cel, f"{rule.field} {rule.message}".strip()) for rule in rules]
    return ruled(schema, *texts) if texts else schema


def field_schema(shape: type[msgspec.Struct], name: str) -> Schema:
    """Return the schema for one field of a type, with the type's default unless it is empty: then absence has a meaning."""
    hint, declaration = _hints(shape)[name], _declaration(shape, name)
    schema = _schema(get_args(hint)[0] if get_origin(hint) is Annotated else hint, declaration)
    default = next(own.default for own in _fields(shape) if own.name == name)
    if default in (msgspec.NODEFAULT, *_EMPTY) or issubclass(shape, StatusPart):
        return schema
    if isinstance(default, Enum):
        default = default.value
    return {**schema, "default": {} if isinstance(default, msgspec.Struct) else default}


def rule_causes(shape: type[msgspec.Struct], value: object, where: str) -> Iterator[Cause]:
    """Yield the rules that an object of a type breaks at a field path, and those of the objects in it, as API servers find them."""
    if not isinstance(value, Mapping):
        return
    yield from broken_rules(_rules(shape), value, where)
    for own in _fields(shape):
        inner, is_list = _inner(_hints(shape)[own.name])
        if inner is not None:
            place = f"{where}.{own.encode_name}" if where else own.encode_name
            if is_list:
                for index, row in rows(value.get(own.encode_name)):
                    yield from rule_causes(inner, row, f"{place}[{index}]")
            else:
                yield from rule_causes(inner, value.get(own.encode_name), place)


def broken_rules(rules: Collection[FieldRule], value: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield those of some rules that an object at a field path breaks."""
    for rule in rules:
        broken = rule.broken(value)
        for at in ((BrokenAt(),) if broken else ()) if isinstance(broken, bool) else broken:
            path = ".".join(part for part in (where, rule.field) if part)
            yield Cause(path.replace("[]", f"[{at.position}]"), f"{rule.message}{at.detail}")


def _schema(kind: Any, field: Field) -> Schema:
    """Return the schema of a type that a field describes."""
    if field.schema is not None:
        return field.schema
    arguments = [argument for argument in get_args(kind) if argument is not type(None)]
    match get_origin(kind):
        case builtins.tuple:
            items = _schema(arguments[0], field.item or Field())
            return listing(field.description, items, key=field.key, **field.limits)
        case typing.Literal:
            return choice(field.description, " ".join(arguments))
        case builtins.dict:
            return words(field.description)
        case None:
            return _single(kind, field)
        case _:  # an optional value
            return _schema(arguments[0], field)


def _single(kind: type, field: Field) -> Schema:
    """Return the schema of a type without parameters."""
    if issubclass(kind, msgspec.Struct):
        return declared_schema(kind, field.description)
    if kind is bool:
        return flag(field.description)
    if kind is int:
        return whole(field.description, **field.limits)
    if choices := [member.value for member in kind] if issubclass(kind, Enum) else field.choices:
        return choice(field.description, " ".join(choices))
    if field.pattern:
        return matching(field.description, field.pattern, **field.limits)
    return text(field.description, field.grammar, **field.limits)


def _inner(hint: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """Return the type of the objects in a field, if there are any, and whether the field is a list of them."""
    if get_origin(hint) is Annotated:
        return _inner(get_args(hint)[0])
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint, False
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    if get_origin(hint) is tuple:
        return _inner(arguments[0])[0], True
    return _inner(arguments[0]) if get_origin(hint) not in (None, dict) else (None, False)


@functools.cache
def _hints(shape: type[msgspec.Struct]) -> Mapping[str, Any]:
    return get_type_hints(shape, include_extras=True)


def _fields(shape: type[msgspec.Struct]) -> tuple[structs.FieldInfo, ...]:
    return structs.fields(shape)


def _rules(shape: type[msgspec.Struct]) -> tuple[FieldRule, ...]:
    return tuple(getattr(shape, RULES, ()))


def _declaration(shape: type[msgspec.Struct], name: str) -> Field:
    """Return what a field declares. Raises TypeError if it declares nothing."""
    hint = _hints(shape)[name]
    for metadata in hint.__metadata__ if get_origin(hint) is Annotated else ():
        if isinstance(metadata, Field):
            return metadata
    raise TypeError(f"{shape.__name__}.{name} has no description; annotate it with a Field")
