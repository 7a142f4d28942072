"""What the history records of an object."""

import re
from pathlib import Path

from tests.history.objects import CANARY, website_split

from headgate.history.records import RECORDED, content_of, controller_of, object_in, record_of
from headgate.resources.registry import KINDS


def test_status_managed_fields_and_bookkeeping_are_no_content() -> None:
    marks = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "headgate.dev/applied-digest": "1"}
    noisy = {**website_split(annotations=marks, resourceVersion="7", generation=2, uid="1"), "status": {"ports": []}}
    assert content_of(noisy) == content_of(website_split(by="other"))
    assert content_of(website_split(annotations={**marks, "team": "shop"})) != content_of(website_split())
    assert object_in(content_of(noisy))["metadata"] == {"name": "website", "namespace": "default"}


def test_the_writers_are_the_managers_of_the_object_itself() -> None:
    entries = [
        {"manager": "first", "operation": "Apply", "time": "2026-01-31T10:00:00Z"},
        {"manager": "second", "operation": "Update", "time": "2026-01-31T11:00:00Z"},
        {"manager": "headgate", "operation": "Update", "time": "2026-01-31T12:00:00Z", "subresource": "status"},
        {"manager": "old", "operation": "Update", "time": "2026-01-31T13:00:00Z", "fieldsV1": {"f:status": {}}},
    ]
    found = record_of(website_split(managedFields=entries))
    assert found.writers == (("2026-01-31T11:00:00Z", "second"), ("2026-01-31T10:00:00Z", "first"))
    assert found.newest == found.writers[:1]
    assert record_of(website_split(managedFields=None)).writers == ()


def test_only_a_controller_controls_an_object() -> None:
    assert controller_of(website_split(ownerReferences=[CANARY])) == "Canary website"
    assert controller_of(website_split(ownerReferences=[{**CANARY, "controller": False}])) == ""


def test_recorded_kinds_exist_and_are_no_secrets() -> None:
    assert {(kind.group, kind.kind) for kind in KINDS} > RECORDED
    assert not {"Secret", "ConfigMap", "Pod", "EndpointSlice"} & {kind for _, kind in RECORDED}


def test_the_page_names_the_recorded_kinds() -> None:
    """SMI and the Gateway API have kinds of the same name."""
    page = (Path(__file__).parents[2] / "docs/tasks/history.md").read_text()
    listed = page.partition("\nKinds: ")[2].partition(". ")[0]
    assert sorted(re.findall(r"\w+", listed)) == sorted(kind for _, kind in RECORDED)
