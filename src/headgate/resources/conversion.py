"""Read parts of an object in a conversion: a value of another type is a mistake that the conversion reports."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.errors import Cause, DecodeError
from headgate.resources.meta import type_name


def mapping(value: object, field: str) -> dict[str, Any]:
    """Return a copy of an object. Raises DecodeError for any other value."""
    if not isinstance(value, Mapping):
        raise DecodeError(Cause(field, f"must be an object, not {type_name(value)}"))
    return dict(value)


def sequence(value: object, field: str) -> Sequence[Any]:
    """Return a list. Raises DecodeError for any other value."""
    if not isinstance(value, list | tuple):
        raise DecodeError(Cause(field, f"must be a list, not {type_name(value)}"))
    return value


def row_list(value: object, field: str) -> list[dict[str, Any]]:
    """Return copies of the objects in a list. Raises DecodeError for any other value."""
    return [mapping(row, f"{field}[{index}]") for index, row in enumerate(sequence(value, field))]
