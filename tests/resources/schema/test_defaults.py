"""Default values of absent fields, and nulls, by the schema of a kind."""

from tests.make.objects import obj
from tests.resources.canary import canary_with

from headgate.resources.schema.defaults import completed, with_schema_defaults


def test_absent_fields_of_present_parents_get_their_defaults() -> None:
    steps = [{"share": "20%"}, {"share": "50%", "pause": True}]
    spec = with_schema_defaults(canary_with({"steps": steps, "minRequests": 7, "clientErrors": {"margin": "2%"}}))[
        "spec"
    ]
    assert spec["paused"] is False
    assert spec["analysis"]["steps"] == [{"share": "20%", "pause": False}, {"share": "50%", "pause": True}]
    assert (spec["analysis"]["minRequests"], spec["analysis"]["interval"]) == (7, "1m")
    assert spec["analysis"]["clientErrors"] == {"margin": "2%", "maxIncrease": "0%"}
    assert spec["analysis"]["success"] == {"maxDrop": "0%", "margin": "1%"}


def test_an_absent_parent_stays_absent() -> None:
    assert "analysis" not in with_schema_defaults(canary_with())["spec"]


def test_null_counts_as_absent_unless_the_field_is_nullable() -> None:
    text = {"type": "string"}
    fields = {"a": {**text, "default": "x"}, "b": {**text, "default": "x", "nullable": True}, "c": text}
    entries = {"type": "object", "properties": {"more": {"type": "object", "additionalProperties": text}}}
    assert completed({"a": None, "b": None, "c": None}, {"properties": fields}) == {"a": "x", "b": None}
    assert completed({"more": {"a": None, "b": "y"}}, entries) == {"more": {"b": "y"}}
    assert completed({"a": None}, {"x-kubernetes-preserve-unknown-fields": True}) == {"a": None}


def test_a_default_is_completed_itself() -> None:
    inner = {"type": "object", "default": {}, "properties": {"name": {"type": "string", "default": "x"}}}
    assert completed({}, {"properties": {"inner": inner}}) == {"inner": {"name": "x"}}
    assert completed({"rows": {"one": {}}}, {"properties": {"rows": {"additionalProperties": inner}}}) == {
        "rows": {"one": {"name": "x"}}
    }


def test_an_object_of_a_kind_of_kubernetes_stays_the_same_object() -> None:
    service = obj("Service", "web", spec={"ports": [{"port": 80}]})
    assert with_schema_defaults(service) is service
