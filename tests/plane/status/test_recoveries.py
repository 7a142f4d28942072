"""The message of an Event about a resolved finding."""

from typing import Any

import pytest

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.kinds import SPLIT
from headgate.plane.status.recoveries import RECOVERIES, recovered
from headgate.resources.meta import Key

ABOUT = Key(SPLIT, "TrafficSplit", "default", "website")
OBJECT: dict[str, Any] = {"spec": {"backends": [{"service": "v1"}, {"service": "v3"}]}}
FIELD = "spec.backends[1].service"


def finding(reason: Reason, field: str = FIELD) -> Finding:
    return Finding(about=ABOUT, reason=reason, field=field, message="wrong")


def test_a_recovery_names_the_field_its_value_and_the_new_state() -> None:
    text = recovered(finding(Reason.BACKEND_NOT_FOUND), (), edited=False, obj=OBJECT)
    assert text == f"{FIELD} (v3): the backend Service exists now; the backend gets its share of the traffic"


@pytest.mark.parametrize(
    ("reason", "kind", "effect"),
    [
        (Reason.SERVICE_NOT_FOUND, "Service", "the traffic of the Service is split"),
        (Reason.BACKEND_NOT_FOUND, "Service", "the backend gets its share of the traffic"),
        (Reason.MATCH_NOT_FOUND, "HTTPRouteGroup", "the split applies the matches of the group"),
    ],
)
def test_a_recovery_names_the_found_object_with_its_namespace(reason: Reason, kind: str, effect: str) -> None:
    gone = Finding(about=ABOUT, reason=reason, field=FIELD, message="", related=(Key("", kind, "shop", "v3"),))
    assert recovered(gone, (), edited=False, obj=OBJECT) == f"{FIELD}: {kind} shop/v3 found; {effect}"


def test_an_object_that_is_still_missing_is_not_found() -> None:
    """The deletion of the root ends the findings about the backends of a split."""
    missing = Key("", "Service", "shop", "v3")
    gone = Finding(about=ABOUT, reason=Reason.BACKEND_NOT_FOUND, field=FIELD, message="", related=(missing,))
    assert recovered(gone, (), edited=False, still_missing=True, obj=OBJECT) == ""


def test_after_an_edit_the_recovery_says_that_the_edit_resolved_the_finding() -> None:
    """The edit may have removed the backend, and the backend's Service may still be missing."""
    assert (
        recovered(finding(Reason.BACKEND_NOT_FOUND), (), edited=True) == f"{FIELD}: the edit resolved BackendNotFound"
    )


def test_there_is_no_recovery_while_another_finding_names_the_same_field() -> None:
    assert recovered(finding(Reason.BACKEND_NOT_FOUND), (finding(Reason.PORT_MISMATCH),), edited=False) == ""
    other = finding(Reason.PORT_MISMATCH, "spec.backends[0].service")
    assert recovered(finding(Reason.BACKEND_NOT_FOUND), (other,), edited=False)


@pytest.mark.parametrize("reason", Reason)
def test_recovery_messages_have_no_negation(reason: Reason) -> None:
    text = recovered(finding(reason, ""), (), edited=False)
    assert text
    assert not {"not", "no", "longer"} & set(text.split())


def test_every_recovery_message_is_for_a_known_reason() -> None:
    assert set(RECOVERIES) <= set(Reason)
