"""Label selectors, and which labels satisfy them."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from headgate.resources.meta import Input
from headgate.resources.schema.declared import Field, FieldRule, declared_schema


class Requirement(Input, frozen=True, kw_only=True):
    """One entry of `matchExpressions`."""

    __rules__ = (
        FieldRule(
            "values",
            "is missing: the operators In and NotIn compare with values",
            cel="!self.operator.endsWith('In') || has(self.values) && size(self.values) > 0",
            broken=lambda entry: entry.get("operator") in ("In", "NotIn") and not entry.get("values"),
        ),
        FieldRule(
            "values",
            "must be left out: the operators Exists and DoesNotExist compare with no values",
            cel="self.operator.endsWith('In') || !has(self.values) || size(self.values) == 0",
            broken=lambda entry: entry.get("operator") in ("Exists", "DoesNotExist") and bool(entry.get("values")),
        ),
    )

    key: Annotated[str, Field("The key of the label.")]
    operator: Annotated[
        str,
        Field(
            "The operator that compares the label's value with the values.",
            choices=("In", "NotIn", "Exists", "DoesNotExist"),
        ),
    ]
    values: Annotated[tuple[str, ...], Field("The values to compare with.", item=Field("A value."))] = ()


class LabelSelector(Input, frozen=True, kw_only=True):
    """A label selector: labels must satisfy `matchLabels` and `matchExpressions`."""

    match_labels: Annotated[dict[str, str], Field("Labels and their values.")] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[Requirement, ...], Field("Conditions on labels.", item=Field("A condition on a label."))
    ] = ()


SELECTOR = declared_schema(LabelSelector, "A label selector. An object must satisfy matchLabels and matchExpressions.")


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
