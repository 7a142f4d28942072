"""Label selectors, and which labels satisfy them."""

from collections.abc import Mapping

from msgspec import field

from headgate.resources.meta import Input


class Requirement(Input, frozen=True, kw_only=True):
    """One entry of `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Input, frozen=True, kw_only=True):
    """A label selector: labels must satisfy `matchLabels` and `matchExpressions`."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a selector. An empty selector selects everything."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(requirement, labels) for requirement in selector.match_expressions
    )


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy one entry of `matchExpressions`. `Lt` and `Gt` compare whole numbers."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Lt" | "Gt" as operator if value is not None and value.lstrip("-").isdecimal():
            limit = int(requirement.values[0])
            return int(value) > limit if operator == "Gt" else int(value) < limit
        case _:
            return False
