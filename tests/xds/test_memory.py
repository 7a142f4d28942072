"""The state of a session does not grow with resources that come and go, whether its proxy answers or not."""

import pytest

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ORDER, ROUTES, SCOPES, Encoded
from headgate.xds import subscription
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import MAX_TIMED_OUT, Session

FEW, MANY = 60, 300
MOST = 20  # limit for the names in one field of a subscription


def encoded(digest, *needs):
    return Encoded(b"x" * 1000, str(digest), frozenset(needs))


def config(number):
    """Return a configuration with some constant resources, and one of each type that only this number has."""
    name = f"n{number}"
    return {
        CLUSTER: {"a": encoded(number), name: encoded(1)},
        ENDPOINTS: {"a": encoded(number), name: encoded(1)},
        LISTENER: {"l": encoded(1), name: encoded(1, name)},
        ROUTES: {"r": encoded(number, "a", name), name: encoded(1, name)},
        SCOPES: {name: encoded(1)},
    }


def ack(found, response):
    found.receive(DeltaRequest(response.type_url, nonce=response.nonce))


def nack(found, response):
    found.receive(DeltaRequest(response.type_url, nonce=response.nonce, error="bad"))


def time_out(found, response):
    found.time_out(response.nonce)


def nack_additions(found, response):
    (nack if response.resources else time_out)(found, response)


def ack_additions(found, response):
    (ack if response.resources else time_out)(found, response)


def started(initial):
    found = Session()
    found.set_config(config(0))
    found.receive(DeltaRequest(CLUSTER, initial=initial))
    found.receive(DeltaRequest(LISTENER, initial=initial))
    found.receive(DeltaRequest(SCOPES))
    return found


def churn(found, rounds, answer):
    for number in range(1, rounds):
        found.set_config(config(number))
        while responses := found.next_responses():
            for response in responses:
                answer(found, response)


def remembered(found):
    """Count the names in each field of each subscription."""
    fields = (
        "subscribed",
        "sent",
        "acknowledged",
        "uncertain",
        "timed_out",
        "rejected",
        "resend",
        "one_by_one",
        "in_flight",
        "timed_out_nonces",
    )
    return {
        (type_url, name): len(getattr(found.subscriptions[type_url], name)) for type_url in ORDER for name in fields
    }


@pytest.mark.parametrize("answer", [ack, nack, time_out, nack_additions, ack_additions])
@pytest.mark.parametrize("subscribes", [True, False])
def test_a_session_forgets_names_of_removed_resources(answer, subscribes):
    found = started({})
    if subscribes:
        found.receive(DeltaRequest(ENDPOINTS, ("a",)))
        found.receive(DeltaRequest(ROUTES, ("r",)))
    churn(found, FEW, answer)
    before = remembered(found)
    churn(found, MANY, answer)
    assert remembered(found) == before
    assert max(before.values()) <= MOST


def test_a_session_forgets_names_of_removed_resources_when_its_proxy_stops_answering():
    found = started({})
    churn(found, FEW, ack)
    churn(found, MANY, time_out)
    assert max(remembered(found).values()) <= MOST


def test_a_session_does_not_keep_the_bodies_of_responses_that_timed_out():
    found = started({})
    churn(found, FEW, time_out)
    in_flight = [
        response for subscription in found.subscriptions.values() for response in subscription.in_flight.values()
    ]
    assert len(in_flight) > MAX_TIMED_OUT
    assert all(not item.body for response in in_flight for _, item in response.resources)


def test_a_nack_is_recorded_after_its_response_timed_out():
    found = started({})
    (response, *_) = found.next_responses()
    found.time_out(response.nonce)
    nack(found, response)
    assert found.subscriptions[CLUSTER].one_by_one.keys() == {"a", "n0"}


def test_a_silent_proxy_with_unknown_routes_exceeds_the_limits(monkeypatch):
    monkeypatch.setattr(subscription, "MAX_NAMES", 100)
    found = started({"old": "1"})  # old clusters can't be removed: the proxy's unknown routes may name them
    churn(found, FEW, time_out)
    assert not found.exceeds_limits
    churn(found, MANY, time_out)
    assert found.exceeds_limits


def test_a_proxy_that_subscribes_to_more_and_more_names_exceeds_the_limits(monkeypatch):
    monkeypatch.setattr(subscription, "MAX_NAMES", 100)
    found = started({})
    found.receive(DeltaRequest(ROUTES, tuple(f"n{number}" for number in range(90))))
    assert not found.exceeds_limits
    found.receive(DeltaRequest(ROUTES, tuple(f"m{number}" for number in range(90))))
    assert found.exceeds_limits


def test_a_proxy_that_reports_many_old_resources_does_not_exceed_the_limits(monkeypatch):
    monkeypatch.setattr(subscription, "MAX_NAMES", 100)
    found = started({f"old{number}": "1" for number in range(1000)})
    churn(found, FEW, ack)
    assert not found.exceeds_limits
