"""Parse Kubernetes quantities (R9, D24) and percentages to exact fractions: `500m` is 1/2, `99.5%` is 199/200."""

import math
import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(r"(?P<sign>[+-]?)(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<suffix>[a-zA-Z]*|[eE][+-]?\d+)", re.ASCII)
_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    **{f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")},
}
PERCENTAGE = r"^[0-9]{1,4}(\.[0-9]{1,6})?%$"
SHARE = r"^(100(\.0{1,6})?|[0-9]{1,2}(\.[0-9]{1,6})?)%$"
"""The grammar of a share of requests. A rule excludes 0%."""
SHARE_LIMITS = "must be above 0% and at most 100%"
_LONGEST = 40  # the most characters of a quantity, which limits the cost of parsing
_LARGEST_EXPONENT = 18


def parse_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity such as `1`, `0m`, `500m`, `1.5`, `2Ki` or `1e3`.

    Raises ValueError with a message for the user.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"a quantity has at most {_LONGEST} characters")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write for example 1, 500m or 1.5")
    value = Fraction(match["number"] if not match["number"].endswith(".") else match["number"][:-1])
    value *= _scale(match["suffix"], text)
    return -value if match["sign"] == "-" else value


def thousandths(amount: str | float) -> int:
    """Return a quantity in thousandths, rounded up. Raises ValueError with a message for the user."""
    return math.ceil(parse_quantity(str(amount)) * 1000)


def of_thousandths(number: int) -> str:
    """Format thousandths as a quantity: `1500m`, `2`."""
    whole, rest = divmod(number, 1000)
    return f"{number}m" if rest else str(whole)


@lru_cache(1000)
def parse_percentage(text: str) -> Fraction:
    """Return the exact value of a percentage such as `1%` or `99.5%`. Raises ValueError with a message for the user."""
    if not re.fullmatch(PERCENTAGE, text, re.ASCII):
        raise ValueError(f"{text!r} is not a percentage; write for example 1% or 99.5%")
    return Fraction(text[:-1]) / 100


def parse_share(text: str) -> Fraction:
    """Return the exact value of a share such as `20%`. Raises ValueError with a message for the user."""
    share = parse_percentage(text)
    if not 0 < share <= 1:
        raise ValueError(f"{SHARE_LIMITS}, not {text}; write for example 20%")
    return share


def _scale(suffix: str, text: str) -> Fraction:
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    exponent = suffix[1:]
    if suffix[0] in "eE" and exponent.lstrip("+-").isdigit() and abs(int(exponent)) <= _LARGEST_EXPONENT:
        return Fraction(10) ** int(exponent)
    raise ValueError(f"{text!r} has the unknown suffix {suffix!r}; write for example 1, 500m or 1.5")
