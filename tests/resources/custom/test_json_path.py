"""JSONPaths of printer columns."""

from typing import Any

import pytest

from headgate.resources.custom import json_path

OBJ: dict[str, Any] = {
    "metadata": {"name": "a", "annotations": {"example.com/x": "y"}, "creationTimestamp": "2020-01-01T00:00:00Z"},
    "spec": {"replicas": 2, "on": True, "share": 1.5, "hosts": ["a", "b"], "ports": [{"n": 1}, {"n": 2}], "none": None},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (".metadata.name", "a"),
        ("{.metadata.name}", "a"),
        ("$.metadata.name", "a"),
        (".spec.replicas", 2),
        (".spec.on", "true"),
        (".spec.share", "1.5"),
        (".spec.hosts", '["a","b"]'),
        (".spec.hosts[0]", "a"),
        (".spec.hosts[-1]", "b"),
        (".spec.hosts[7]", ""),
        (".spec.ports[*].n", 1),
        (".spec.hosts.name", ""),
        (".spec.none", ""),
        (".spec.absent.deeper", ""),
        (r".metadata.annotations.example\.com/x", "y"),
        (".metadata.annotations['example.com/x']", "y"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='Synced')].status", "False"),
        ('.status.conditions[?(@.type=="Gone")].status', ""),
        (".status.conditions[?(@.x > 1)].status", ""),
        ("metadata", ""),
    ],
)
def test_a_column_shows_the_first_value_at_its_path(path: str, shown: object) -> None:
    assert json_path.cell(path, is_date=False)(OBJ) == shown


def test_a_date_is_shown_as_an_age() -> None:
    assert str(json_path.cell(".metadata.creationTimestamp", is_date=True)(OBJ)).endswith("d")
