"""The steps back to an earlier revision, and the objects that they write."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.history.objects import contents, owned, website_split
from tests.make.objects import service
from tests.rollout.canaries import website_canary

from headgate.history.records import content_of, object_in
from headgate.history.restoration import manifest, restorations
from headgate.resources.meta import Key
from headgate.resources.registry import CANARY, SERVICE


def test_changed_objects_are_restored_created_and_deleted() -> None:
    present = contents(website_split(weight=50), website_split("new"), service("same"))
    past = contents(website_split(), service("old"), service("same"))
    found = [(step.verb, step.key.name) for step in restorations(present, past)]
    assert found == [("create", "old"), ("update", "website"), ("delete", "new")]


def test_objects_of_a_controller_are_skipped() -> None:
    (step,) = restorations(contents(owned(10)), contents(owned(90)))
    assert step.skipped == "Canary website controls it"
    (deleted,) = restorations(contents(owned(10)), {})
    assert deleted.skipped == "Canary website controls it"


def test_the_time_of_creation_is_no_difference() -> None:
    assert (
        restorations(contents(website_split(creationTimestamp="2026-01-01T00:00:00Z")), contents(website_split())) == ()
    )


_STATES = st.dictionaries(st.sampled_from([SERVICE.key("default", name) for name in "abcd"]), st.integers(1, 3))


@given(_STATES, _STATES)
def test_the_steps_lead_to_the_objects_of_the_past(now: dict[Key, int], then: dict[Key, int]) -> None:
    present, past = (
        {key: content_of(service(key.name, selector={"app": str(value)})) for key, value in state.items()}
        for state in (now, then)
    )
    found = dict(present)
    for step in restorations(present, past):
        assert step.present == found.pop(step.key, None)
        if step.wanted is not None:
            found[step.key] = step.wanted
    assert found == past


def test_an_update_keeps_what_the_history_does_not_record() -> None:
    marks = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "shop"}
    stored = {
        **service("web", clusterIP="10.0.0.9", clusterIPs=["10.0.0.9"]),
        "status": {"loadBalancer": {}},
    }
    stored["metadata"] |= {"resourceVersion": "7", "finalizers": ["a/b"], "annotations": marks, "labels": {"x": "y"}}
    past = content_of(service("web", clusterIP="10.0.0.1", clusterIPs=["10.0.0.1"], selector={"app": "web"}))
    found = manifest(past, stored)
    assert found["spec"] == {**stored["spec"], "selector": {"app": "web"}}
    assert found["metadata"] == {
        "name": "web",
        "namespace": "default",
        "resourceVersion": "7",
        "finalizers": ["a/b"],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    assert found["status"] == stored["status"]


def test_a_step_has_the_present_values_of_fields_that_are_not_restored() -> None:
    """So a client shows and writes the same."""
    present = contents(service("web", clusterIP="10.0.0.9", clusterIPs=["10.0.0.9"]))
    past = contents(service("web", clusterIP="10.0.0.1", clusterIPs=["10.0.0.1"], selector={"app": "web"}))
    (updated,), (created,) = restorations(present, past), restorations({}, past)
    assert updated.wanted
    assert object_in(updated.wanted)["spec"]["clusterIP"] == "10.0.0.9"
    assert object_in(updated.wanted)["spec"]["selector"] == {"app": "web"}
    assert created.wanted
    assert "clusterIP" not in object_in(created.wanted)["spec"]


def test_an_earlier_request_to_a_rollout_is_not_made_again() -> None:
    def asked(**request: str) -> dict[str, Any]:
        return website_canary() | {"spec": website_canary()["spec"] | ({"request": request} if request else {})}

    promoted = content_of(asked(action="Promote", id="1"))
    assert manifest(promoted, asked())["spec"] == asked()["spec"]
    assert manifest(promoted)["spec"] == asked()["spec"]
    paused = asked(action="Abort", id="2")
    assert manifest(promoted, paused)["spec"]["request"] == {"action": "Abort", "id": "2"}
    key = CANARY.key("default", "website")
    assert restorations({key: content_of(paused)}, {key: promoted}) == ()


def test_a_created_service_gets_a_new_address_unless_it_is_headless() -> None:
    assert "clusterIP" not in manifest(content_of(service("web", clusterIP="10.0.0.1")))["spec"]
    assert manifest(content_of(service("web", clusterIP="None")))["spec"]["clusterIP"] == "None"
