"""The delta session, transcript by transcript: what it says, and above all when it says nothing."""

import pytest
from tests.xds.conftest import config, written

from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, Encoded, Resources
from headgate.xds import versions
from headgate.xds.fleet import Proxy
from headgate.xds.session import MANY, MOST_OVERDUE, Request, write_response
from headgate.xds.versions import LARGEST

A = ("CDS a=1", "EDS a=1", "LDS l=1", "RDS r=1(a)")
A_AND_B = ("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS r=2(a,b)")


def test_a_fresh_proxy_gets_clusters_then_endpoints_then_routes(stream):
    proxy = stream(*A)
    assert proxy.ask("CDS") == ["CDS a=1"]
    assert proxy.ask("LDS") == ["LDS l=1"]
    assert proxy.ask("EDS", "a") == ["EDS a=1"]
    assert proxy.ask("RDS", "r") == []
    assert proxy.ack("LDS") == []
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == ["RDS r=1"]
    assert proxy.ack("RDS") == []


def test_an_unchanged_version_is_silence(stream):
    proxy = stream(*A).serve()
    assert proxy.offer(*A) == []


def test_a_weight_change_is_one_small_resource(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=2", "LDS l=1", "RDS r=1(a)") == ["EDS a=2"]


def test_the_first_wildcard_request_is_answered_even_with_nothing(stream):
    proxy = stream()
    assert proxy.ask("CDS") == ["CDS"]
    assert proxy.ask("LDS", "*") == ["LDS"]
    assert proxy.ask("SRDS") == ["SRDS"]
    assert proxy.ack("CDS") == proxy.ack("LDS") == proxy.ack("SRDS") == []


def test_a_named_resource_that_does_not_exist_is_told_once(stream):
    proxy = stream()
    assert proxy.ask("RDS", "r") == ["RDS -r"]
    assert proxy.ack("RDS") == []
    assert proxy.offer("RDS r=1") == ["RDS r=1"]


def test_types_that_headgate_does_not_serve_are_ignored(stream):
    proxy = stream(*A)
    assert proxy.session.receive(Request("type.googleapis.com/envoy.config.route.v3.VirtualHost", ("h",))) == ()
    assert proxy.session.advance() == []


def test_a_route_waits_for_its_new_cluster_and_the_endpoints(stream):
    proxy = stream(*A).serve()
    assert proxy.offer(*A_AND_B) == ["CDS b=1"]
    assert proxy.ask("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS") == []  # Envoy acks the cluster when it is warm
    assert proxy.ack("CDS") == ["RDS r=2"]


def test_a_route_waits_for_endpoints_that_come_after_the_cluster(stream):
    proxy = stream(*A).serve()
    proxy.offer(*A_AND_B)
    assert proxy.ack("CDS") == []
    assert proxy.ask("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS") == ["RDS r=2"]


def test_a_cluster_leaves_when_the_route_that_named_it_is_replaced(stream):
    proxy = stream(*A).serve()
    moved = ("CDS b=1", "EDS b=1", "LDS l=1", "RDS r=2(b)")
    assert proxy.offer(*moved) == ["CDS b=1"]
    assert proxy.ask("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == ["RDS r=2"]
    assert proxy.ack("RDS") == ["CDS -a"]
    assert proxy.ask("EDS", leave="a") == []
    assert proxy.ack("CDS") == []


def test_a_cluster_leaves_when_the_proxy_lets_go_of_the_route(stream):
    proxy = stream(*A).serve()
    assert proxy.offer() == ["LDS -l"]
    assert proxy.ack("LDS") == []
    assert proxy.ask("RDS", leave="r") == ["CDS -a"]


def test_a_route_that_is_told_to_be_gone_still_counts_until_the_proxy_lets_go_of_it(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=1", "RDS r=2(a)") == ["RDS r=2", "LDS -l"]
    assert proxy.offer() == []
    assert proxy.ack("RDS", "r") == ["RDS -r"]  # it let go of r, asked again, and then took r=2
    assert proxy.ack("RDS") == []  # Envoy ignores removals of routes
    assert proxy.ack("LDS", leave="r") == []
    assert proxy.ask("RDS", leave="r") == ["CDS -a"]


def test_an_answer_that_lets_go_of_its_own_resource_does_not_hold_it(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=1", "RDS r=2(a)") == ["RDS r=2", "LDS -l"]
    assert proxy.ack("RDS", leave="r") == []
    assert proxy.ack("LDS") == []
    assert proxy.offer() == ["CDS -a"]


def test_a_cluster_that_is_sent_again_is_followed_by_its_endpoints(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=2", *A[1:]) == ["CDS a=2", "EDS a=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == []


def test_the_endpoints_follow_as_soon_as_they_may(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=2", *A[2:]) == ["EDS a=2"]
    assert proxy.offer("CDS a=2", "EDS a=2", *A[2:]) == ["CDS a=2"]
    assert proxy.ack("EDS") == ["EDS a=2"]


def test_the_endpoints_follow_a_cluster_that_changed_while_the_proxy_was_away(stream):
    proxy = stream("CDS a=2", *A[1:])
    assert proxy.ask("CDS", has="a=1") == ["CDS a=2"]
    assert proxy.ask("EDS", "a", has="a=1") == ["EDS a=1"]


def test_the_last_endpoints_follow_a_changed_cluster_that_is_deleted_meanwhile(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=2", *A[2:]) == ["EDS a=2"]
    assert proxy.offer("CDS a=2", "EDS a=2", *A[2:]) == ["CDS a=2"]
    assert proxy.offer(*A[2:]) == []
    assert proxy.ack("EDS") == ["EDS a=2"]  # or Envoy would keep its answer about clusters back for 15 seconds


def test_one_response_of_a_type_is_in_flight(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=2", *A[2:]) == ["EDS a=2"]
    assert proxy.offer("CDS a=1", "EDS a=3", *A[2:]) == []
    assert proxy.offer("CDS a=1", "EDS a=4", *A[2:]) == []
    assert proxy.ack("EDS") == ["EDS a=4"]


def test_a_refused_resource_is_not_sent_again_until_it_changes(stream):
    proxy = stream(*A).serve()
    changed = ("CDS a=1", "EDS a=1", "LDS l=2", "RDS r=1(a)")
    assert proxy.offer(*changed) == ["LDS l=2"]
    assert proxy.nack("LDS", "no such filter") == []
    assert proxy.rejected == ["LDS l=2: no such filter"]
    assert proxy.offer(*changed) == []
    assert proxy.offer("CDS a=1", "EDS a=1", "LDS l=3", "RDS r=1(a)") == ["LDS l=3"]


def test_a_listener_whose_address_was_in_use_is_offered_again_and_told_once(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=1", "LDS l=2", "RDS r=1(a)") == ["LDS l=2"]
    assert proxy.nack("LDS", "cannot bind '127.77.0.1:80': Address already in use") == []
    assert proxy.retry() == ["LDS l=2"]
    assert proxy.nack("LDS", "cannot bind '127.77.0.1:80': Address already in use") == []
    assert len(proxy.rejected) == 1
    assert proxy.retry() == ["LDS l=2"]
    assert proxy.ack("LDS") == []
    assert proxy.retry() == []


def test_a_listener_that_is_wrong_is_not_offered_again(stream):
    proxy = stream(*A).serve()
    assert proxy.offer("CDS a=1", "EDS a=1", "LDS l=2", "RDS r=1(a)") == ["LDS l=2"]
    assert proxy.nack("LDS", "no such filter") == []
    assert proxy.retry() == []


def test_a_refused_response_is_repeated_one_by_one_and_only_the_bad_one_is_rejected(stream):
    proxy = stream("CDS a=1 b=1 c=1")
    assert proxy.ask("CDS") == ["CDS a=1 b=1 c=1"]
    assert proxy.nack("CDS") == ["CDS a=1"]
    assert proxy.rejected == []
    assert proxy.ack("CDS") == ["CDS b=1"]
    assert proxy.nack("CDS", "b is bad") == ["CDS c=1"]
    assert proxy.rejected == ["CDS b=1: b is bad"]
    assert proxy.ack("CDS") == []


def test_what_is_repeated_is_not_lost_while_it_must_wait(stream):
    proxy = stream("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=1(a) r=1(a)")
    proxy.ask("CDS")
    proxy.ask("EDS", "a b")
    proxy.ask("LDS")
    proxy.ask("RDS", "q r")
    proxy.settle()
    good = ("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=2(a) r=2(b)")
    assert proxy.offer(*good) == ["RDS q=2 r=2"]
    assert proxy.offer("CDS a=1 b=2", *good[1:]) == ["CDS b=2", "EDS b=1"]
    assert proxy.nack("RDS") == ["RDS q=2"]
    proxy.settle()
    assert proxy.session.shelves[ROUTES].held["r"].digest == "2"


def test_a_removal_in_a_refused_response_is_said_again(stream):
    proxy = stream("SRDS h=1")
    proxy.ask("SRDS")
    proxy.settle()
    assert proxy.offer("SRDS i=1") == ["SRDS i=1 -h"]
    assert proxy.nack("SRDS") == ["SRDS -h"]
    assert proxy.ack("SRDS") == []
    assert proxy.offer("SRDS h=1 i=1") == ["SRDS h=1"]


def test_a_cluster_stays_while_a_scope_whose_removal_was_refused_may_name_it(stream):
    """A scope with its routes in it: the proxy applies nothing of a response that it refuses."""
    proxy = stream("CDS a=1", "EDS a=1", "SRDS own=1(a)")
    proxy.ask("SRDS")
    proxy.serve()
    assert proxy.offer("SRDS h=1") == ["SRDS h=1 -own"]
    assert proxy.nack("SRDS") == ["SRDS -own"]
    assert proxy.ack("SRDS") == ["CDS -a"]


def test_a_cluster_stays_while_a_scope_of_an_earlier_stream_may_be_there(stream):
    proxy = stream("SRDS i=1")
    proxy.ask("CDS", has="a=1")
    proxy.ack("CDS")
    assert proxy.ask("SRDS", has="h=1") == ["SRDS i=1 -h"]
    assert proxy.ask("LDS") == ["LDS"]
    assert proxy.nack("SRDS") == ["SRDS -h"]
    assert proxy.ack("SRDS") == ["CDS -a"]


def test_a_cluster_stays_while_a_route_of_a_refused_response_may_name_it(stream):
    proxy = stream("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=1(a) r=1(a)")
    proxy.ask("CDS")
    proxy.ask("EDS", "a b")
    proxy.ask("LDS")
    proxy.ask("RDS", "q r")
    proxy.settle()
    proxy.offer("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=2(a) r=2(b)")
    assert proxy.offer("CDS a=1", "EDS a=1", "LDS l=1", "RDS q=3(a) r=3(a)") == []
    assert proxy.nack("RDS") == ["RDS q=3"]  # Envoy may have taken r=2 before it found q=2 bad
    assert proxy.ack("RDS") == ["RDS r=3"]
    assert proxy.ack("RDS") == ["CDS -b"]


def test_a_route_keeps_its_last_good_version_while_its_new_cluster_is_refused(stream):
    proxy = stream(*A).serve()
    assert proxy.offer(*A_AND_B) == ["CDS b=1"]
    assert proxy.nack("CDS") == []
    assert proxy.offer("CDS a=1 b=2", *A_AND_B[1:]) == ["CDS b=2"]
    assert proxy.ask("EDS", "b") == ["EDS b=1"]
    proxy.ack("EDS")
    assert proxy.ack("CDS") == ["RDS r=2"]


@pytest.mark.parametrize("refused", ["CDS", "EDS"])
def test_a_proxy_without_any_version_of_a_route_gets_it_though_a_cluster_is_refused(stream, refused):
    proxy = stream(*A)
    proxy.ask("CDS")
    proxy.ask("LDS")
    proxy.ask("RDS", "r")
    proxy.ask("EDS", "a")
    assert proxy.ack("EDS" if refused == "CDS" else "CDS") == []
    assert proxy.nack(refused) == ["RDS r=1"]


def test_a_refusal_that_is_history_does_not_let_a_route_go_ahead(stream):
    proxy = stream("CDS a=1 b=1", "EDS a=1 b=1", "RDS r=1(a)")
    proxy.ask("CDS")
    proxy.nack("CDS")  # both are repeated
    assert proxy.nack("CDS", "a is bad") == ["CDS b=1"]
    assert proxy.offer("CDS a=2 b=1", "EDS a=1 b=1", "RDS r=1(a)") == []
    assert proxy.ask("RDS", "r") == []  # a=2 is not even sent yet: b=1 is in flight
    assert proxy.ack("CDS") == ["CDS a=2"]


def test_a_reconnect_resends_nothing_that_is_current(stream):
    proxy = stream(*A)
    assert proxy.ask("CDS", has="a=1") == ["CDS"]
    assert proxy.ask("EDS", "a", has="a=1") == []
    assert proxy.ask("LDS", has="l=1") == []
    assert proxy.ask("RDS", "r", has="r=1") == []
    assert proxy.ack("CDS") == []


def test_a_proxy_that_comes_back_has_told_all_that_it_has_when_it_answers(stream):
    proxy, known = stream(*A), Proxy("any")
    known.config.set(proxy.session.config)
    proxy.ask("CDS", has="a=1")
    known.attach(proxy.session, lambda _ending: None)
    for short, name in (("EDS", "a"), ("LDS", ""), ("RDS", "r")):
        assert not known.settled()
        proxy.ask(short, name, has=f"{name or 'l'}=1")
    assert not known.settled()
    proxy.ack("CDS")
    assert known.settled()


def test_nobody_waits_for_what_a_proxy_tells_that_never_answers(stream):
    proxy, known = stream(*A), Proxy("any")
    known.attach(proxy.session, lambda _ending: None)
    proxy.ask("CDS", has="a=1")
    assert not known.has_told()
    proxy.lapse("CDS")
    assert known.has_told()


def test_a_reconnect_sends_what_changed_meanwhile(stream):
    proxy = stream("CDS a=1", "EDS a=2", "LDS l=1", "RDS r=1(a)")
    assert proxy.ask("CDS", has="a=1") == ["CDS"]
    assert proxy.ask("EDS", "a", has="a=1") == ["EDS a=2"]
    assert proxy.ask("LDS", has="l=1 m=1") == ["LDS -m"]
    assert proxy.ask("RDS", "r", has="r=1") == []


def test_after_a_reconnect_no_cluster_leaves_before_the_proxy_has_told_its_routes(stream):
    proxy = stream("CDS b=1", "EDS b=1", "LDS l=1", "RDS r=2(b)")
    assert proxy.ask("CDS", has="a=1") == ["CDS b=1"]
    assert proxy.ask("EDS", "a b", has="a=1") == ["EDS b=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == []  # a stays: the proxy's routes are not known yet
    assert proxy.ask("LDS", has="l=1") == []
    assert proxy.ask("RDS", "r", has="r=1") == ["RDS r=2"]  # r=1 may name anything
    assert proxy.ack("RDS") == ["CDS -a"]


def test_what_a_proxy_brought_is_recognised_though_the_configuration_comes_later(stream):
    proxy = stream()
    session = proxy.session
    for type_url, has in ((CLUSTER, {"a": "1", "b": "1"}), (LISTENER, {"l": "1"}), (ROUTES, {"r": "1"})):
        session.receive(Request(type_url, ("r",) if type_url == ROUTES else (), initial=has))
    assert proxy.offer(*A) == ["CDS -b"]


def test_a_proxy_with_listeners_and_no_routes_yet_keeps_its_clusters(stream):
    proxy = stream(*A)
    assert proxy.ask("LDS", has="l=1") == []
    assert proxy.ask("CDS", has="a=1 b=1") == ["CDS"]
    assert proxy.ack("CDS") == []
    assert proxy.ask("RDS", "r") == ["CDS -b"]
    assert proxy.ask("EDS", "a", has="a=1") == ["RDS r=1"]


def test_nothing_waits_for_an_overdue_answer(stream):
    proxy = stream(*A)
    proxy.ask("RDS", "r")
    proxy.ask("EDS", "a")
    proxy.ask("CDS")
    assert proxy.lapse("CDS") == []
    assert proxy.lapse("EDS") == ["RDS r=1"]
    assert proxy.offer("CDS a=2", *A[1:]) == ["CDS a=2", "EDS a=1"]


def test_a_late_ack_counts(stream):
    proxy = stream("CDS a=1")
    proxy.ask("CDS")
    proxy.lapse("CDS")
    assert proxy.offer("CDS a=2") == ["CDS a=2"]
    proxy.ack("CDS")
    assert proxy.session.shelves[CLUSTER].held["a"].digest == "1"
    proxy.ack("CDS")
    assert proxy.session.shelves[CLUSTER].held["a"].digest == "2"


def test_a_late_refusal_counts(stream):
    proxy = stream("CDS a=1")
    proxy.ask("CDS")
    proxy.lapse("CDS")
    assert proxy.nack("CDS", "a is bad") == []
    assert proxy.rejected == ["CDS a=1: a is bad"]


def test_a_proxy_that_never_answers_costs_no_memory_and_its_clusters_stay(stream):
    proxy = stream(*A).serve()
    proxy.offer("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS r=2(b)")
    proxy.ask("EDS", "b")
    proxy.ack("EDS")
    proxy.ack("CDS")
    for version in range(3, 3 + 2 * MOST_OVERDUE):
        proxy.lapse("RDS")
        proxy.unanswered[ROUTES].pop(0)
        assert proxy.offer("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", f"RDS r={version}(a)") == [f"RDS r={version}"]
    assert len(proxy.session.shelves[ROUTES].flying) <= MOST_OVERDUE + 1
    assert proxy.offer("CDS a=1", "EDS a=1", "LDS l=1", f"RDS r={version}(a)") == []


def test_what_is_asked_for_again_is_sent_again(stream):
    proxy = stream(*A).serve()
    assert proxy.ask("EDS", leave="a") == []
    assert proxy.ask("EDS", "a") == ["EDS a=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ask("EDS", "a") == ["EDS a=1"]


def test_endpoints_that_are_asked_for_anew_are_not_there_until_they_are_taken(stream):
    proxy = stream(*A).serve()
    assert proxy.offer(*A_AND_B) == ["CDS b=1"]
    assert proxy.ask("EDS", "b") == ["EDS b=1"]
    proxy.ack("EDS")
    assert proxy.ask("EDS", "b") == ["EDS b=1"]  # Envoy dropped the cluster and has it again, in one step
    assert proxy.ack("CDS") == []
    assert proxy.ack("EDS") == ["RDS r=2"]


def test_what_is_no_longer_asked_for_is_not_sent(stream):
    proxy = stream(*A).serve()
    proxy.ask("RDS", leave="r")
    assert proxy.offer("CDS a=1", "EDS a=1", "LDS l=1", "RDS r=2(a)") == []
    assert proxy.ask("RDS", "r") == ["RDS r=2"]


def test_a_named_resource_of_a_wildcard_type_that_is_gone_is_told_once(stream):
    proxy = stream("CDS a=1")
    proxy.ask("CDS", "* x")
    proxy.ack("CDS")
    proxy.ask("CDS", "a")
    proxy.ack("CDS")
    assert proxy.offer() == ["CDS -a"]
    assert proxy.ack("CDS") == []


def test_a_response_has_a_largest_size(stream):
    half = LARGEST // 2
    proxy = stream(f"CDS a=1*{half} b=1*{half} c=1*{half} d=1*{2 * LARGEST} e=1")
    assert proxy.ask("CDS") == ["CDS a=1 b=1"]
    assert proxy.ack("CDS") == ["CDS c=1"]
    assert proxy.ack("CDS") == ["CDS d=1"]
    assert proxy.ack("CDS") == ["CDS e=1"]
    assert proxy.ack("CDS") == []


def test_a_certificate_is_sent_to_who_asks_for_it_and_a_new_one_touches_no_listener(stream):
    proxy = stream("LDS l=1", "SDS s=1 t=1")
    assert proxy.ask("LDS") == ["LDS l=1"]
    assert proxy.ask("SDS", "s") == ["SDS s=1"]
    proxy.settle()
    assert proxy.offer("LDS l=1", "SDS s=2 t=2") == ["SDS s=2"]


def test_a_route_that_the_proxy_let_go_of_is_not_held_back_for_a_refused_cluster(stream):
    proxy = stream(*A).serve()
    assert proxy.offer(*A[:3], "RDS r=2(a)") == ["RDS r=2"]
    proxy.ask("RDS", leave="r")  # and so it does not take r=2, whatever it answers
    proxy.offer(*A_AND_B)
    proxy.nack("CDS")  # b
    assert proxy.ack("RDS", "r") == ["RDS r=2"]


def test_what_was_refused_with_others_and_gone_for_a_moment_is_sent_again(stream):
    proxy = stream("SDS s=1 t=1")
    proxy.ask("SDS", "s t")
    proxy.settle()
    assert proxy.offer("SDS s=2 t=2") == ["SDS s=2 t=2"]
    assert proxy.nack("SDS") == ["SDS s=2"]
    assert proxy.offer("SDS s=2") == []
    assert proxy.offer("SDS s=2 t=2") == []
    assert proxy.ack("SDS") == ["SDS t=2"]  # it has t=1 still


class Watched(dict):
    """Counts how often it is looked through."""

    looks = 0

    def items(self):
        self.looks += 1
        return super().items()


def test_what_other_proxies_hold_too_is_looked_through_once_for_all(stream):
    proxies = [stream(*A).serve() for _ in range(3)]
    for proxy in proxies:
        proxy.session.offer(proxies[0].session.config)
        proxy.session.advance()
    clusters = Watched(proxies[0].session.config[CLUSTER])
    for version in ("2", "3", "4"):
        wanted = {**config(*A[1:3], f"RDS r={version}(a)"), CLUSTER: clusters}
        for proxy in proxies:
            proxy.session.offer(wanted)
            assert [written(response) for response in proxy.session.advance()] == [f"RDS r={version}"]
            proxy.session.receive(Request(ROUTES, nonce=next(iter(proxy.session.shelves[ROUTES].flying))))
    assert clusters.looks == 1
    assert proxies[0].ask("CDS", has="a=0") == ["CDS a=1", "EDS a=1"]


def test_a_settled_proxy_keeps_nothing_but_a_pointer(stream):
    one, other = stream(*A).serve(), stream(*A).serve()
    for proxy in (one, other):
        proxy.session.offer(one.session.config)
        assert proxy.session.advance() == []
    for shelf, twin in zip(one.session.shelves.values(), other.session.shelves.values(), strict=True):
        assert not shelf.known.exceptions
        assert not shelf.held.exceptions
        assert shelf.held.base.common is twin.held.base.common
        assert shelf.subscribed is twin.subscribed


def test_proxies_that_are_sent_the_same_are_sent_the_same_bytes(stream):
    names = [f"n{number}" for number in range(MANY)]
    wanted = config(f"CDS {' '.join(f'{name}=1' for name in names)}")
    sent = []
    for _ in range(2):
        proxy = stream()
        proxy.session.receive(Request(CLUSTER))
        proxy.session.offer(wanted)
        sent += [write_response(response) for response in proxy.session.advance()]
    assert sent[0] is sent[1]


def test_a_proxys_own_comes_with_what_is_common_when_that_is_small(stream, monkeypatch):
    both = Resources({"a": Encoded(b"a", "1")}, {"b": Encoded(b"b", "1")})
    proxy = stream()
    proxy.session.offer({CLUSTER: both})
    assert proxy.ask("CDS") == ["CDS a=1 b=1"]
    monkeypatch.setattr(versions, "SMALL", 0)
    proxy = stream()
    proxy.session.offer({CLUSTER: both})
    assert proxy.ask("CDS") == ["CDS a=1"]
    assert proxy.ack("CDS") == ["CDS b=1"]


def test_a_resource_of_its_own_that_becomes_common_is_not_sent_again(stream):
    one, two = Encoded(b"a", "1"), Encoded(b"b", "1")
    proxy = stream()
    proxy.session.offer({CLUSTER: Resources({"a": one}, {"b": two})})
    proxy.ask("CDS")
    proxy.settle()
    for resources in (Resources({"a": one, "b": two}, {}), Resources({"b": two}, {"a": one})):
        proxy.session.offer({CLUSTER: resources})
        assert proxy.session.advance() == []


def test_a_cluster_stays_until_a_proxy_that_reconnects_has_told_its_listeners_though_no_route_is_wanted(stream):
    proxy = stream("CDS b=1", "LDS l=2(b)")
    assert proxy.ask("CDS", has="a=1 b=1") == ["CDS"]
    assert proxy.ack("CDS") == []
    assert proxy.ask("LDS", has="l=1(a)") == ["LDS l=2"]
    assert proxy.ack("LDS") == ["CDS -a"]
