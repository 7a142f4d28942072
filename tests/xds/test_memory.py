"""What a stream remembers does not grow with names that come and go, however its proxy answers (or does not)."""

import pytest

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ORDER, ROUTES, SCOPES, Encoded
from headgate.xds import shelf
from headgate.xds.session import MOST_OVERDUE, Request, Session

FEW, MANY = 60, 300
MOST = 20  # names of one memory


def encoded(digest, *needs):
    return Encoded(b"x" * 1000, str(digest), frozenset(needs))


def config(number):
    """Return some things that stay, and one of each type that is there this time only."""
    name = f"n{number}"
    return {
        CLUSTER: {"a": encoded(number), name: encoded(1)},
        ENDPOINTS: {"a": encoded(number), name: encoded(1)},
        LISTENER: {"l": encoded(1), name: encoded(1, name)},
        ROUTES: {"r": encoded(number, "a", name), name: encoded(1, name)},
        SCOPES: {name: encoded(1)},
    }


def ack(found, response):
    found.receive(Request(response.type_url, nonce=response.nonce))


def nack(found, response):
    found.receive(Request(response.type_url, nonce=response.nonce, error="bad"))


def lapse(found, response):
    found.lapse(response.nonce)


def nack_what_is_added(found, response):
    (nack if response.resources else lapse)(found, response)


def ack_what_is_added(found, response):
    (ack if response.resources else lapse)(found, response)


def started(initial):
    found = Session()
    found.offer(config(0))
    found.receive(Request(CLUSTER, initial=initial))
    found.receive(Request(LISTENER, initial=initial))
    found.receive(Request(SCOPES))
    return found


def churn(found, rounds, answer):
    for number in range(1, rounds):
        found.offer(config(number))
        while responses := found.advance():
            for response in responses:
                answer(found, response)


def remembered(found):
    """Count the names by type and memory."""
    memories = ("subscribed", "known", "held", "doubtful", "lapsed", "rejected", "again", "alone", "flying", "overdue")
    return {(type_url, name): len(getattr(found.shelves[type_url], name)) for type_url in ORDER for name in memories}


@pytest.mark.parametrize("answer", [ack, nack, lapse, nack_what_is_added, ack_what_is_added])
@pytest.mark.parametrize("subscribes", [True, False])
def test_names_that_are_gone_are_forgotten(answer, subscribes):
    found = started({})
    if subscribes:
        found.receive(Request(ENDPOINTS, ("a",)))
        found.receive(Request(ROUTES, ("r",)))
    churn(found, FEW, answer)
    before = remembered(found)
    churn(found, MANY, answer)
    assert remembered(found) == before
    assert max(before.values()) <= MOST


def test_a_proxy_that_falls_silent_is_forgotten_no_less():
    found = started({})
    churn(found, FEW, ack)
    churn(found, MANY, lapse)
    assert max(remembered(found).values()) <= MOST


def test_the_content_of_what_nobody_answers_is_not_kept():
    found = started({})
    churn(found, FEW, lapse)
    flying = [response for shelf in found.shelves.values() for response in shelf.flying.values()]
    assert len(flying) > MOST_OVERDUE
    assert all(not item.body for response in flying for _, item in response.resources)


def test_a_late_answer_counts_though_the_content_is_gone():
    found = started({})
    (response, *_) = found.advance()
    found.lapse(response.nonce)
    nack(found, response)
    assert found.shelves[CLUSTER].alone.keys() == {"a", "n0"}


def test_a_silent_proxy_whose_routes_nobody_knows_is_noticed_before_it_costs_much(monkeypatch):
    monkeypatch.setattr(shelf, "MOST_NAMES", 100)
    found = started({"old": "1"})  # its clusters can't be taken away: the routes that it has may name them
    churn(found, FEW, lapse)
    assert not found.is_overgrown
    churn(found, MANY, lapse)
    assert found.is_overgrown


def test_a_proxy_that_asks_for_names_without_end_is_noticed(monkeypatch):
    monkeypatch.setattr(shelf, "MOST_NAMES", 100)
    found = started({})
    found.receive(Request(ROUTES, tuple(f"n{number}" for number in range(90))))
    assert not found.is_overgrown
    found.receive(Request(ROUTES, tuple(f"m{number}" for number in range(90))))
    assert found.is_overgrown


def test_a_proxy_with_a_long_past_is_not_sent_away_for_it(monkeypatch):
    monkeypatch.setattr(shelf, "MOST_NAMES", 100)
    found = started({f"old{number}": "1" for number in range(1000)})
    churn(found, FEW, ack)
    assert not found.is_overgrown
