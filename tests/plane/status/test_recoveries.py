"""What is said when a finding no longer holds."""

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
    return Finding(about=ABOUT, reason=reason, field=field, message="it is not so")


def test_it_names_the_field_its_value_and_what_holds_now() -> None:
    said = recovered(finding(Reason.BACKEND_NOT_FOUND), (), edited=False, obj=OBJECT)
    assert said == f"{FIELD} (v3): the Service exists now; it gets its share of the traffic"


@pytest.mark.parametrize(
    ("reason", "kind", "follows"),
    [
        (Reason.SERVICE_NOT_FOUND, "Service", "its traffic is split"),
        (Reason.BACKEND_NOT_FOUND, "Service", "it gets its share of the traffic"),
        (Reason.MATCH_NOT_FOUND, "HTTPRouteGroup", "its matches count"),
    ],
)
def test_what_was_missing_is_named_with_its_namespace(reason: Reason, kind: str, follows: str) -> None:
    gone = Finding(about=ABOUT, reason=reason, field=FIELD, message="", related=(Key("", kind, "shop", "v3"),))
    assert recovered(gone, (), edited=False, obj=OBJECT) == f"{FIELD}: {kind} shop/v3 found; {follows}"


def test_an_edit_of_the_object_is_said_to_have_resolved_it() -> None:
    """The user may have removed the backend: then its Service does not exist now either."""
    assert (
        recovered(finding(Reason.BACKEND_NOT_FOUND), (), edited=True) == f"{FIELD}: the edit resolved BackendNotFound"
    )


def test_nothing_is_said_while_another_finding_is_about_the_same_field() -> None:
    assert recovered(finding(Reason.BACKEND_NOT_FOUND), (finding(Reason.PORT_MISMATCH),), edited=False) == ""
    other = finding(Reason.PORT_MISMATCH, "spec.backends[0].service")
    assert recovered(finding(Reason.BACKEND_NOT_FOUND), (other,), edited=False)


@pytest.mark.parametrize("reason", Reason)
def test_no_message_negates_a_negation(reason: Reason) -> None:
    said = recovered(finding(reason, ""), (), edited=False)
    assert said
    assert not {"not", "no", "longer"} & set(said.split())


def test_every_reason_of_the_table_is_one() -> None:
    assert set(RECOVERIES) <= set(Reason)
