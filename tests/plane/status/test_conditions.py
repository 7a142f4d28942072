"""The shares of a split in its status."""

from fractions import Fraction

from headgate.compiler.report import Share, SplitOutcome
from headgate.kinds import SPLIT
from headgate.model.routing import PortRef
from headgate.plane.status.conditions import shares, summary
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
