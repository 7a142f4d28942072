"""The shares and conditions of a split in its status."""

from fractions import Fraction

import pytest
from tests.make.objects import Object, backed_service, service, split
from tests.make.values import compiled

from headgate.compiler.report import Share, SplitOutcome
from headgate.kinds import SPLIT
from headgate.model.routing import PortRef
from headgate.plane.status.conditions import conditions, shares, summary
from headgate.plane.status.receipts import Progress
from headgate.resources.meta import Key
from headgate.resources.schema.catalog import schemas

HALF = Fraction(1, 2)
OUTCOME = SplitOutcome(
    about=Key(SPLIT, "TrafficSplit", "shop", "card"),
    ref=PortRef("shop/web", 80),
    shares=tuple(
        Share(service=service, weight=1, share=HALF, endpoints=1) for service in ("shop/card", "payments/card")
    ),
    root=Fraction(0),
    failed=Fraction(0),
)


def test_backends_of_one_name_in_two_namespaces_are_two_items_of_the_status() -> None:
    """The name is the key of the list: an API server refuses a status with two items of one key."""
    (port,) = shares([OUTCOME])
    names = [backend.service for backend in port.backends]
    assert names == ["card", "card.payments"]
    ports = schemas()[SPLIT, "v1alpha4", "TrafficSplit"]["properties"]["status"]["properties"]["ports"]
    assert ports["items"]["properties"]["backends"]["x-kubernetes-list-map-keys"] == ["service"]


def test_an_event_names_backends_as_the_split_does() -> None:
    assert summary([OUTCOME]) == "port 80: card 50%, card.payments 50%"


def backends_ready(*objects: Object) -> tuple[bool | None, str, str]:
    """Return the status, reason and message of the condition BackendsReady of the split `web`."""
    report = compiled(*backed_service("web"), *backed_service("v1", ("", "10.1.0.1")), *objects).report
    findings = [finding for finding in report.findings if finding.about.kind == "TrafficSplit"]
    outcomes = [outcome for outcome in report.outcomes if outcome.about.name == "web"]
    every = conditions(findings, Progress(), outcomes)
    (condition,) = [condition for condition in every if condition.type == "BackendsReady"]
    return condition.status, condition.reason, condition.message


@pytest.mark.parametrize(
    ("backend", "reason", "message"),
    [
        ([], "BackendNotFound", "Service default/v2 not found; it gets no traffic until it exists"),
        (backed_service("v2"), "NoReadyEndpoints", "Service default/v2 has no ready endpoint on port 8080"),
        ([service("v2", 9090)], "PortMismatch", "Service default/v2 has only port 9090; add port 8080 to it"),
    ],
)
def test_backends_are_not_ready_while_one_with_a_weight_gets_nothing(
    backend: list[Object], reason: str, message: str
) -> None:
    """The reason and the message are those of the finding."""
    status, shown, text = backends_ready(*backend, split("web", {"v1": 90, "v2": 10}))
    assert (status, shown) == (False, reason)
    assert message in text


def test_a_backend_without_a_weight_need_not_exist() -> None:
    assert backends_ready(split("web", {"v1": 1, "v2": 0}))[:2] == (True, "BackendsReady")


@pytest.mark.parametrize(
    "unused", [split("web", {"v1": 1}, matches=["gone"]), split("web", {"v1": 1}, service="nowhere")]
)
def test_backends_of_a_split_that_applies_nowhere_are_not_checked(unused: Object) -> None:
    assert backends_ready(unused)[:2] == (None, "NotChecked")
