"""Schemas and checks that derive from the types of objects."""

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cel_rules import compiled

from headgate.errors import Cause
from headgate.resources.meta import Input
from headgate.resources.schema.builders import RULES
from headgate.resources.schema.declared import BrokenAt, Field, FieldRule, declared_schema, rule_causes
from headgate.resources.selectors import Requirement
from headgate.resources.smi.http_route_group import HttpMatch
from headgate.resources.smi.traffic_target import Rule


class Limit(Input, frozen=True, kw_only=True):
    """A limit of a port."""

    __rules__ = (
        FieldRule(
            "most",
            "is below least",
            cel="!has(self.most) || self.most >= self.least",
            broken=lambda limit: "most" in limit and limit["most"] < limit["least"],
        ),
    )

    least: Annotated[int, Field("The smallest number.", limits={"minimum": 1})]
    most: Annotated[int | None, Field("The largest number.")] = None


class Limits(Input, frozen=True, kw_only=True):
    """The limits of a Service."""

    port_limits: Annotated[tuple[Limit, ...], Field("The limits of ports.", item=Field("A limit."), required=True)] = ()
    whole: Annotated[Limit | None, Field("The limit of the Service.")] = None


class Undescribed(Input, frozen=True, kw_only=True):
    """A type with a field that declares nothing."""

    name: str


def test_a_schema_has_the_fields_limits_and_rules_of_a_type() -> None:
    whole: Mapping[str, Any] = {"type": "integer", "format": "int64"}
    limit = {
        "type": "object",
        "description": "A limit.",
        "properties": {
            "least": {**whole, "description": "The smallest number.", "minimum": 1},
            "most": {**whole, "description": "The largest number."},
        },
        "required": ["least"],
        RULES: [{"rule": "!has(self.most) || self.most >= self.least", "message": "most is below least"}],
    }
    assert declared_schema(Limits, "The limits.") == {
        "type": "object",
        "description": "The limits.",
        "properties": {
            "portLimits": {"type": "array", "description": "The limits of ports.", "items": limit},
            "whole": {**limit, "description": "The limit of the Service."},
        },
        "required": ["portLimits"],
    }


def test_a_broken_rule_is_reported_at_its_field_with_the_message_of_the_schema() -> None:
    broken, kept = {"least": 2, "most": 1}, {"least": 1}
    assert list(rule_causes(Limits, {"portLimits": [kept, broken], "whole": broken}, "spec")) == [
        Cause("spec.portLimits[1].most", "is below least"),
        Cause("spec.whole.most", "is below least"),
    ]


class Steps(Input, frozen=True, kw_only=True):
    """Steps, of which none may be zero."""

    __rules__ = (
        FieldRule(
            "steps[].height",
            "must not be 0",
            cel="self.steps.all(step, step.height != 0)",
            broken=lambda steps: [
                BrokenAt(index, f": it is {step['name']}")
                for index, step in enumerate(steps["steps"])
                if not step["height"]
            ],
        ),
    )


def test_a_rule_about_a_list_is_reported_at_each_entry_that_breaks_it() -> None:
    steps = [{"name": "a", "height": 0}, {"name": "b", "height": 1}, {"name": "c", "height": 0}]
    assert list(rule_causes(Steps, {"steps": steps}, "spec")) == [
        Cause("spec.steps[0].height", "must not be 0: it is a"),
        Cause("spec.steps[2].height", "must not be 0: it is c"),
    ]
    (rule,) = declared_schema(Steps, "Steps.")[RULES]
    assert rule["message"] == "steps[].height must not be 0"


class Call(Input, frozen=True, kw_only=True):
    """Fields with a default, and fields whose absence has a meaning."""

    group: Annotated[str, Field("The group.")] = "specs"
    port: Annotated[int, Field("The port.")] = 0
    pause: Annotated[bool, Field("Whether it pauses.")] = False
    limit: Annotated[Limit | None, Field("The limit; none when absent.")] = None
    name: Annotated[str, Field("The name; any when absent.")] = ""
    ports: Annotated[tuple[int, ...], Field("The ports; all when empty.", item=Field("A port."))] = ()


def test_a_schema_has_every_default_except_an_empty_one() -> None:
    properties = declared_schema(Call, "A call.")["properties"]
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    assert defaults == {"group": "specs", "port": 0, "pause": False}


def test_a_field_without_a_description_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Undescribed\.name has no description"):
        declared_schema(Undescribed, "An object.")


TEXTS = st.sampled_from(["", "In", "NotIn", "Exists", "DoesNotExist", "HTTPRouteGroup", "TCPRoute", "all"])
OBJECTS = st.fixed_dictionaries(
    {"name": TEXTS, "kind": TEXTS, "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"])},
    optional={"values": st.lists(TEXTS, max_size=2), "matches": st.lists(TEXTS, max_size=2)},
)


@pytest.mark.parametrize(
    "rule",
    [rule for shape in (Requirement, HttpMatch, Rule) for rule in shape.__rules__],
    ids=lambda rule: rule.cel,
)
@given(value=OBJECTS)
def test_a_rule_is_broken_in_python_where_it_is_false_in_cel(rule: FieldRule, value: dict[str, Any]) -> None:
    assert compiled(rule.cel).eval(data={"self": value}).value() is not rule.broken(value)
