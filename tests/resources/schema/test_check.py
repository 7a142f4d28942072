"""Comparing values with schemas: unknown fields and messages."""

from typing import Any

import pytest
from tests.decoding import check
from tests.make.objects import Object, obj

from headgate.kinds import GATEWAY
from headgate.resources.schema.catalog import schemas
from headgate.resources.schema.check import FORMATS, PATTERNS, check_schema

ROUTE = schemas()[GATEWAY, "v1", "HTTPRoute"]


def route_of(**rule: Any) -> Object:
    return obj("HTTPRoute", "web", spec={"rules": [rule]})


def test_unknown_fields_are_reported_and_removed():
    found = check_schema(route_of(timeout="1s", matches=[{"path": {"value": "/", "kind": "Prefix"}}]), ROUTE)
    assert found.unknown == ["spec.rules[0].timeout", "spec.rules[0].matches[0].path.kind"]
    assert found.value == route_of(matches=[{"path": {"value": "/"}}])
    assert str(found.causes[0]).startswith("spec.rules[0].timeout: is not a field; did you mean timeouts?")


def test_unknown_fields_are_removed_from_requests_and_rejected_in_files():
    obj = route_of(timeout="1s")
    requested = check(obj, request=True)
    assert (requested.causes, requested.unknown) == ((), ["spec.rules[0].timeout"])
    assert requested.hub == route_of()
    assert [cause.field for cause in check(obj).causes] == ["spec.rules[0].timeout"]


def test_unknown_fields_of_kubernetes_own_kinds_are_kept():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [], "newer": {}}}
    found = check(pod, request=True)
    assert (found.causes, found.unknown, found.hub) == ((), ["spec.newer"], pod)


@pytest.mark.parametrize(
    ("target", "sound"),
    [(80, True), ("http", True), (True, False), ([], False)],
    ids=["number", "name", "flag", "list"],
)
def test_a_target_port_may_be_a_number_or_a_name(target: object, sound: bool) -> None:
    ports = [{"port": 80, "targetPort": target}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": ports}}
    assert (not check(service).causes) is sound


def test_each_pattern_of_a_name_in_the_schemas_has_a_readable_error_message():
    """The message says what to write, instead of a regular expression."""

    def patterns(part: Any) -> Any:
        if "pattern" in part and part.get("format") not in FORMATS:
            yield part["pattern"]
        for inner in (*part.get("properties", {}).values(), part.get("items")):
            if isinstance(inner, dict):
                yield from patterns(inner)

    rules = ROUTE["properties"]["spec"]["properties"]["rules"]["items"]["properties"]
    for name in ("matches", "timeouts", "sessionPersistence", "name"):
        assert set(patterns(rules[name])) <= set(PATTERNS)
