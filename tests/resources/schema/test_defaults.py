"""Default values of absent fields, by the schema of a kind."""

from tests.make.objects import obj
from tests.resources.canary import canary_with

from headgate.resources.schema.defaults import with_schema_defaults


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


def test_an_object_whose_schema_has_no_defaults_stays_the_same_object() -> None:
    service = obj("Service", "web", spec={"ports": [{"port": 80}]})
    assert with_schema_defaults(service) is service
