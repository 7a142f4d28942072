"""Weights of backends: quantities as users write them (`500m`), and the integers that they become (R9, D24)."""

import math
from collections.abc import Sequence
from fractions import Fraction

from headgate.errors import Cause, DecodeError
from headgate.quantity import parse_quantity
from headgate.resources.meta import type_name

LARGEST_SUM = 2**32 - 1  # The highest sum of weights: Envoy adds them as 32-bit integers.
LARGEST_WEIGHT = 2**63 - 1  # The highest weight: clients read weights as 64-bit integers.


def quantity(value: object, field: str) -> Fraction:
    """Return the exact value of a weight that is written as a quantity. Raises DecodeError with the path `field`."""
    if value is None:
        raise DecodeError(Cause(field, "is missing: write a quantity, for example 1, 500m or 1.5"))
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DecodeError(Cause(field, f"must be a quantity such as 1, 500m or 1.5, not {type_name(value)}"))
    try:
        weight = parse_quantity(str(value))
    except ValueError as error:
        raise DecodeError(Cause(field, str(error))) from error
    if weight < 0:
        raise DecodeError(Cause(field, f"must be 0 or more, not {value}"))
    return weight


def integer_weights(weights: Sequence[Fraction]) -> Sequence[int]:
    """Return integer weights in the same ratio: unchanged if all are integers, else the smallest possible (D24).

    Raises DecodeError for weights that need more digits than clients read.
    """
    if all(weight.denominator == 1 for weight in weights):
        integers: Sequence[int] = [int(weight) for weight in weights]
    else:
        integers = whole_weights(weights)
    if max(integers, default=0) > LARGEST_WEIGHT:
        raise DecodeError(
            Cause("spec.backends", f"have a ratio that needs integer weights above {LARGEST_WEIGHT}; use fewer digits")
        )
    return integers


def whole_weights(values: Sequence[Fraction | int]) -> tuple[int, ...]:
    """Scale weights to the smallest integers in the same ratio. If all are zero, they stay zero."""
    common = math.lcm(*(value.denominator for value in values)) if values else 1
    scaled = [int(value * common) for value in values]
    divisor = math.gcd(*scaled) or 1
    return tuple(weight // divisor for weight in scaled)
