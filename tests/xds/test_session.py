"""Transcripts of delta sessions: which responses follow a request, and which requests get no response."""

import pytest
from tests.xds.conftest import config, written

from headgate.envoy.config import CLUSTER, LISTENER, ROUTES, Encoded, Resources
from headgate.xds import versions
from headgate.xds.fleet import FleetProxy
from headgate.xds.messages import MIN_CACHED_RESOURCES, DeltaRequest, write_response
from headgate.xds.session import MAX_TIMED_OUT
from headgate.xds.versions import MAX_RESPONSE_BYTES

A = ("CDS a=1", "EDS a=1", "LDS l=1", "RDS r=1(a)")
A_AND_B = ("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS r=2(a,b)")


def test_a_fresh_proxy_gets_clusters_then_endpoints_then_routes(stream):
    proxy = stream(*A)
    assert proxy.request("CDS") == ["CDS a=1"]
    assert proxy.request("LDS") == ["LDS l=1"]
    assert proxy.request("EDS", "a") == ["EDS a=1"]
    assert proxy.request("RDS", "r") == []
    assert proxy.ack("LDS") == []
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == ["RDS r=1"]
    assert proxy.ack("RDS") == []


def test_an_unchanged_configuration_causes_no_response(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config(*A) == []


def test_a_change_of_weights_sends_only_the_changed_endpoints(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=2", "LDS l=1", "RDS r=1(a)") == ["EDS a=2"]


def test_the_first_wildcard_request_gets_a_response_even_if_it_is_empty(stream):
    proxy = stream()
    assert proxy.request("CDS") == ["CDS"]
    assert proxy.request("LDS", "*") == ["LDS"]
    assert proxy.request("SRDS") == ["SRDS"]
    assert proxy.ack("CDS") == proxy.ack("LDS") == proxy.ack("SRDS") == []


def test_the_removal_of_a_nonexistent_named_resource_is_sent_once(stream):
    proxy = stream()
    assert proxy.request("RDS", "r") == ["RDS -r"]
    assert proxy.ack("RDS") == []
    assert proxy.set_config("RDS r=1") == ["RDS r=1"]


def test_types_that_headgate_does_not_serve_are_ignored(stream):
    proxy = stream(*A)
    assert proxy.session.receive(DeltaRequest("type.googleapis.com/envoy.config.route.v3.VirtualHost", ("h",))) == ()
    assert proxy.session.next_responses() == []


def test_a_route_waits_for_its_new_cluster_and_its_endpoints(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config(*A_AND_B) == ["CDS b=1"]
    assert proxy.request("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS") == []  # Envoy acks the cluster when it is warm
    assert proxy.ack("CDS") == ["RDS r=2"]


def test_a_route_waits_for_endpoints_that_are_requested_after_the_ack_of_the_cluster(stream):
    proxy = stream(*A).serve()
    proxy.set_config(*A_AND_B)
    assert proxy.ack("CDS") == []
    assert proxy.request("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS") == ["RDS r=2"]


def test_a_cluster_is_removed_after_the_route_that_named_it_is_replaced(stream):
    proxy = stream(*A).serve()
    moved = ("CDS b=1", "EDS b=1", "LDS l=1", "RDS r=2(b)")
    assert proxy.set_config(*moved) == ["CDS b=1"]
    assert proxy.request("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == ["RDS r=2"]
    assert proxy.ack("RDS") == ["CDS -a"]
    assert proxy.request("EDS", unsubscribe="a") == []
    assert proxy.ack("CDS") == []


def test_a_cluster_outlives_the_requests_that_may_still_be_repeated_there(stream):
    """Envoy answers 503 to a request that is repeated when its cluster is gone."""
    proxy = stream(*A, removal_delay=11).serve()
    proxy.set_config("CDS b=1", "EDS b=1", "LDS l=1", "RDS r=2(b)")
    proxy.request("EDS", "b")
    proxy.ack_all()
    assert proxy.session.next_removal == 11
    assert proxy.session.out_of_sync(10) == set()
    assert proxy.check_removals(10) == []
    assert proxy.check_removals(11) == ["CDS -a"]
    proxy.ack_all()
    assert proxy.session.next_removal is None


def test_the_removal_of_a_cluster_that_gets_another_route_waits_again(stream):
    proxy = stream(*A, removal_delay=11).serve()
    without = ("LDS l=1", "RDS r=2")
    proxy.set_config(*without)
    proxy.ack_all()
    proxy.now = 8
    proxy.set_config(*A)
    proxy.ack_all()
    proxy.set_config(*without)
    proxy.ack_all()
    assert proxy.check_removals(11) == []
    assert proxy.check_removals(19) == ["CDS -a"]


def test_a_cluster_is_removed_after_the_proxy_unsubscribes_from_its_route(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config() == ["LDS -l"]
    assert proxy.ack("LDS") == []
    assert proxy.request("RDS", unsubscribe="r") == ["CDS -a"]


def test_a_removed_route_keeps_its_cluster_until_the_proxy_unsubscribes(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=1", "RDS r=2(a)") == ["RDS r=2", "LDS -l"]
    assert proxy.set_config() == []
    assert proxy.ack("RDS", "r") == ["RDS -r"]  # the proxy unsubscribed, subscribed again, then acknowledged r=2
    assert proxy.ack("RDS") == []  # Envoy ignores removals of routes
    assert proxy.ack("LDS", unsubscribe="r") == []
    assert proxy.request("RDS", unsubscribe="r") == ["CDS -a"]


def test_an_ack_that_unsubscribes_does_not_record_the_resource_as_acknowledged(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=1", "RDS r=2(a)") == ["RDS r=2", "LDS -l"]
    assert proxy.ack("RDS", unsubscribe="r") == []
    assert proxy.ack("LDS") == []
    assert proxy.set_config() == ["CDS -a"]


def test_a_changed_cluster_is_followed_by_its_endpoints(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=2", *A[1:]) == ["CDS a=2", "EDS a=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == []


def test_endpoints_follow_a_changed_cluster_once_no_endpoints_are_in_flight(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=2", *A[2:]) == ["EDS a=2"]
    assert proxy.set_config("CDS a=2", "EDS a=2", *A[2:]) == ["CDS a=2"]
    assert proxy.ack("EDS") == ["EDS a=2"]


def test_endpoints_follow_a_cluster_that_changed_while_the_proxy_was_disconnected(stream):
    proxy = stream("CDS a=2", *A[1:])
    assert proxy.request("CDS", initial="a=1") == ["CDS a=2"]
    assert proxy.request("EDS", "a", initial="a=1") == ["EDS a=1"]


def test_the_last_endpoints_follow_a_changed_cluster_that_is_no_longer_wanted(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=2", *A[2:]) == ["EDS a=2"]
    assert proxy.set_config("CDS a=2", "EDS a=2", *A[2:]) == ["CDS a=2"]
    assert proxy.set_config(*A[2:]) == []
    assert proxy.ack("EDS") == ["EDS a=2"]  # without them Envoy delays its ACK of clusters by 15 seconds


def test_only_one_response_of_a_type_is_in_flight(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=2", *A[2:]) == ["EDS a=2"]
    assert proxy.set_config("CDS a=1", "EDS a=3", *A[2:]) == []
    assert proxy.set_config("CDS a=1", "EDS a=4", *A[2:]) == []
    assert proxy.ack("EDS") == ["EDS a=4"]


def test_a_rejected_resource_is_not_sent_again_until_it_changes(stream):
    proxy = stream(*A).serve()
    changed = ("CDS a=1", "EDS a=1", "LDS l=2", "RDS r=1(a)")
    assert proxy.set_config(*changed) == ["LDS l=2"]
    assert proxy.nack("LDS", "no such filter") == []
    assert proxy.rejected == ["LDS l=2: no such filter"]
    assert proxy.set_config(*changed) == []
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=3", "RDS r=1(a)") == ["LDS l=3"]


def test_a_listener_whose_address_was_in_use_is_retried_and_its_rejection_reported_once(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=2", "RDS r=1(a)") == ["LDS l=2"]
    assert proxy.nack("LDS", "cannot bind '127.77.0.1:80': Address already in use") == []
    assert proxy.retry_listeners() == ["LDS l=2"]
    assert proxy.nack("LDS", "cannot bind '127.77.0.1:80': Address already in use") == []
    assert len(proxy.rejected) == 1
    assert proxy.retry_listeners() == ["LDS l=2"]
    assert proxy.ack("LDS") == []
    assert proxy.retry_listeners() == []


def test_an_invalid_listener_is_not_retried(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=2", "RDS r=1(a)") == ["LDS l=2"]
    assert proxy.nack("LDS", "no such filter") == []
    assert proxy.retry_listeners() == []


def test_after_a_nack_resources_are_sent_one_by_one_and_only_the_invalid_one_is_rejected(stream):
    proxy = stream("CDS a=1 b=1 c=1")
    assert proxy.request("CDS") == ["CDS a=1 b=1 c=1"]
    assert proxy.nack("CDS") == ["CDS a=1"]
    assert proxy.rejected == []
    assert proxy.ack("CDS") == ["CDS b=1"]
    assert proxy.nack("CDS", "b is bad") == ["CDS c=1"]
    assert proxy.rejected == ["CDS b=1: b is bad"]
    assert proxy.ack("CDS") == []


def test_a_resource_to_be_sent_one_by_one_is_sent_after_waiting_for_its_cluster(stream):
    proxy = stream("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=1(a) r=1(a)")
    proxy.request("CDS")
    proxy.request("EDS", "a b")
    proxy.request("LDS")
    proxy.request("RDS", "q r")
    proxy.ack_all()
    good = ("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=2(a) r=2(b)")
    assert proxy.set_config(*good) == ["RDS q=2 r=2"]
    assert proxy.set_config("CDS a=1 b=2", *good[1:]) == ["CDS b=2", "EDS b=1"]
    assert proxy.nack("RDS") == ["RDS q=2"]
    proxy.ack_all()
    assert proxy.session.subscriptions[ROUTES].acknowledged["r"].digest == "2"


def test_a_removal_in_a_rejected_response_is_sent_again(stream):
    proxy = stream("SRDS h=1")
    proxy.request("SRDS")
    proxy.ack_all()
    assert proxy.set_config("SRDS i=1") == ["SRDS i=1 -h"]
    assert proxy.nack("SRDS") == ["SRDS -h"]
    assert proxy.ack("SRDS") == []
    assert proxy.set_config("SRDS h=1 i=1") == ["SRDS h=1"]


def test_a_cluster_stays_while_a_scope_whose_removal_was_rejected_may_name_it(stream):
    """The scope has inline routes, and Envoy applies no part of a rejected response with scopes."""
    proxy = stream("CDS a=1", "EDS a=1", "SRDS own=1(a)")
    proxy.request("SRDS")
    proxy.serve()
    assert proxy.set_config("SRDS h=1") == ["SRDS h=1 -own"]
    assert proxy.nack("SRDS") == ["SRDS -own"]
    assert proxy.ack("SRDS") == ["CDS -a"]


def test_a_cluster_is_not_removed_while_the_proxy_may_have_a_scope_from_an_earlier_stream(stream):
    proxy = stream("SRDS i=1")
    assert proxy.request("CDS", initial="a=1") == []
    assert proxy.request("SRDS", initial="h=1") == ["SRDS i=1 -h"]
    assert proxy.request("LDS") == ["LDS"]
    assert proxy.nack("SRDS") == ["SRDS -h"]
    assert proxy.ack("SRDS") == ["CDS -a"]


def test_a_cluster_stays_while_a_route_of_a_rejected_response_may_name_it(stream):
    proxy = stream("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=1(a) r=1(a)")
    proxy.request("CDS")
    proxy.request("EDS", "a b")
    proxy.request("LDS")
    proxy.request("RDS", "q r")
    proxy.ack_all()
    proxy.set_config("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS q=2(a) r=2(b)")
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=1", "RDS q=3(a) r=3(a)") == []
    assert proxy.nack("RDS") == ["RDS q=3"]  # Envoy may have applied r=2 before it rejected q=2
    assert proxy.ack("RDS") == ["RDS r=3"]
    assert proxy.ack("RDS") == ["CDS -b"]


def test_a_route_keeps_its_last_good_version_while_its_new_cluster_is_rejected(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config(*A_AND_B) == ["CDS b=1"]
    assert proxy.nack("CDS") == []
    assert proxy.set_config("CDS a=1 b=2", *A_AND_B[1:]) == ["CDS b=2"]
    assert proxy.request("EDS", "b") == ["EDS b=1"]
    proxy.ack("EDS")
    assert proxy.ack("CDS") == ["RDS r=2"]


@pytest.mark.parametrize("refused", ["CDS", "EDS"])
def test_a_rejected_cluster_does_not_delay_a_route_that_the_proxy_does_not_have(stream, refused):
    proxy = stream(*A)
    proxy.request("CDS")
    proxy.request("LDS")
    proxy.request("RDS", "r")
    proxy.request("EDS", "a")
    assert proxy.ack("EDS" if refused == "CDS" else "CDS") == []
    assert proxy.nack(refused) == ["RDS r=1"]


def test_a_route_still_waits_for_its_cluster_after_an_old_version_of_the_cluster_is_rejected(stream):
    proxy = stream("CDS a=1 b=1", "EDS a=1 b=1", "RDS r=1(a)")
    proxy.request("CDS")
    proxy.nack("CDS")  # both are sent again, one by one
    assert proxy.nack("CDS", "a is bad") == ["CDS b=1"]
    assert proxy.set_config("CDS a=2 b=1", "EDS a=1 b=1", "RDS r=1(a)") == []
    assert proxy.request("RDS", "r") == []  # a=2 is not sent yet: b=1 is in flight
    assert proxy.ack("CDS") == ["CDS a=2"]


def test_a_reconnecting_proxy_that_has_everything_gets_no_response_and_counts_as_up_to_date(stream):
    proxy, fleet_proxy = stream(*A), FleetProxy("any")
    fleet_proxy.config.set(proxy.session.config)
    assert proxy.request("CDS", initial="a=1") == []
    fleet_proxy.attach(proxy.session, lambda _reason: None)
    for short, name in (("EDS", "a"), ("LDS", ""), ("RDS", "r")):
        assert not fleet_proxy.settled()
        assert proxy.request(short, name, initial=f"{name or 'l'}=1") == []
    assert fleet_proxy.settled()
    assert proxy.confirm_report() == []


def test_a_reconnected_proxy_without_a_wanted_type_is_up_to_date_after_an_ack_of_clusters(stream):
    """A proxy without TLS does not request secrets."""
    proxy, fleet_proxy = stream(*A, "SDS s=1"), FleetProxy("any")
    fleet_proxy.config.set(proxy.session.config)
    fleet_proxy.attach(proxy.session, lambda _reason: None)
    for short, name, held in (("CDS", "", "a"), ("EDS", "a", "a"), ("LDS", "", "l"), ("RDS", "r", "r")):
        assert proxy.request(short, name, initial=f"{held}=1") == []
    assert not fleet_proxy.settled()
    assert proxy.confirm_report() == ["CDS"]
    assert proxy.confirm_report() == []
    proxy.ack("CDS")
    assert fleet_proxy.settled()


def test_the_report_of_a_reconnecting_proxy_is_complete_when_its_first_response_times_out(stream):
    proxy, fleet_proxy = stream(*A), FleetProxy("any")
    fleet_proxy.attach(proxy.session, lambda _reason: None)
    proxy.request("CDS", initial="a=2")
    assert not fleet_proxy.has_reported_all()
    proxy.time_out("CDS")
    assert fleet_proxy.has_reported_all()


def test_a_reconnecting_proxy_gets_the_resources_that_changed_meanwhile(stream):
    proxy = stream("CDS a=1", "EDS a=2", "LDS l=1", "RDS r=1(a)")
    assert proxy.request("CDS", initial="a=1") == []
    assert proxy.request("EDS", "a", initial="a=1") == ["EDS a=2"]
    assert proxy.request("LDS", initial="l=1 m=1") == ["LDS -m"]
    assert proxy.request("RDS", "r", initial="r=1") == []


def test_after_a_reconnect_no_cluster_is_removed_before_the_proxy_reports_its_routes(stream):
    proxy = stream("CDS b=1", "EDS b=1", "LDS l=1", "RDS r=2(b)")
    assert proxy.request("CDS", initial="a=1") == ["CDS b=1"]
    assert proxy.request("EDS", "a b", initial="a=1") == ["EDS b=1"]
    assert proxy.ack("EDS") == []
    assert proxy.ack("CDS") == []  # a stays: the proxy's routes are not known yet
    assert proxy.request("LDS", initial="l=1") == []
    assert proxy.request("RDS", "r", initial="r=1") == ["RDS r=2"]  # r=1 may name anything
    assert proxy.ack("RDS") == ["CDS -a"]


def test_reported_versions_match_a_configuration_that_is_set_later(stream):
    proxy = stream()
    session = proxy.session
    for type_url, has in ((CLUSTER, {"a": "1", "b": "1"}), (LISTENER, {"l": "1"}), (ROUTES, {"r": "1"})):
        session.receive(DeltaRequest(type_url, ("r",) if type_url == ROUTES else (), initial=has))
    assert proxy.set_config(*A) == ["CDS -b"]


def test_a_proxy_with_listeners_keeps_its_clusters_until_it_requests_routes(stream):
    proxy = stream(*A)
    assert proxy.request("LDS", initial="l=1") == []
    assert proxy.request("CDS", initial="a=1 b=1") == []
    assert proxy.request("RDS", "r") == ["CDS -b"]
    assert proxy.request("EDS", "a", initial="a=1") == ["RDS r=1"]


def test_a_response_that_timed_out_delays_no_other_response(stream):
    proxy = stream(*A)
    proxy.request("RDS", "r")
    proxy.request("EDS", "a")
    proxy.request("CDS")
    assert proxy.time_out("CDS") == []
    assert proxy.time_out("EDS") == ["RDS r=1"]
    assert proxy.set_config("CDS a=2", *A[1:]) == ["CDS a=2", "EDS a=1"]


def test_an_ack_after_the_timeout_is_recorded(stream):
    proxy = stream("CDS a=1")
    proxy.request("CDS")
    proxy.time_out("CDS")
    assert proxy.set_config("CDS a=2") == ["CDS a=2"]
    proxy.ack("CDS")
    assert proxy.session.subscriptions[CLUSTER].acknowledged["a"].digest == "1"
    proxy.ack("CDS")
    assert proxy.session.subscriptions[CLUSTER].acknowledged["a"].digest == "2"


def test_a_nack_after_the_timeout_is_recorded(stream):
    proxy = stream("CDS a=1")
    proxy.request("CDS")
    proxy.time_out("CDS")
    assert proxy.nack("CDS", "a is bad") == []
    assert proxy.rejected == ["CDS a=1: a is bad"]


def test_a_proxy_that_never_answers_keeps_its_clusters_and_takes_limited_memory(stream):
    proxy = stream(*A).serve()
    proxy.set_config("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", "RDS r=2(b)")
    proxy.request("EDS", "b")
    proxy.ack("EDS")
    proxy.ack("CDS")
    for version in range(3, 3 + 2 * MAX_TIMED_OUT):
        proxy.time_out("RDS")
        proxy.unanswered[ROUTES].pop(0)
        assert proxy.set_config("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1", f"RDS r={version}(a)") == [f"RDS r={version}"]
    assert len(proxy.session.subscriptions[ROUTES].in_flight) <= MAX_TIMED_OUT + 1
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=1", f"RDS r={version}(a)") == []


def test_a_resource_that_is_subscribed_again_is_sent_again(stream):
    proxy = stream(*A).serve()
    assert proxy.request("EDS", unsubscribe="a") == []
    assert proxy.request("EDS", "a") == ["EDS a=1"]
    assert proxy.ack("EDS") == []
    assert proxy.request("EDS", "a") == ["EDS a=1"]


def test_endpoints_that_are_subscribed_again_delay_a_route_until_they_are_acknowledged(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config(*A_AND_B) == ["CDS b=1"]
    assert proxy.request("EDS", "b") == ["EDS b=1"]
    proxy.ack("EDS")
    assert proxy.request("EDS", "b") == ["EDS b=1"]  # Envoy removed the cluster and added it again in one update
    assert proxy.ack("CDS") == []
    assert proxy.ack("EDS") == ["RDS r=2"]


def test_endpoints_that_an_ack_subscribes_to_again_delay_a_route_until_they_are_acknowledged(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config(*A_AND_B) == ["CDS b=1"]
    assert proxy.request("EDS", "b") == ["EDS b=1"]
    assert proxy.ack("EDS", "b") == ["EDS b=1"]  # Envoy removed the cluster and added it again before it sent the ACK
    assert proxy.ack("CDS") == []
    assert proxy.ack("EDS") == ["RDS r=2"]


def test_an_unsubscribed_resource_is_not_sent(stream):
    proxy = stream(*A).serve()
    proxy.request("RDS", unsubscribe="r")
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=1", "RDS r=2(a)") == []
    assert proxy.request("RDS", "r") == ["RDS r=2"]


def test_the_removal_of_a_resource_that_is_also_subscribed_by_name_is_sent_once(stream):
    proxy = stream("CDS a=1")
    proxy.request("CDS", "* x")
    proxy.ack("CDS")
    proxy.request("CDS", "a")
    proxy.ack("CDS")
    assert proxy.set_config() == ["CDS -a"]
    assert proxy.ack("CDS") == []


def test_large_resources_are_sent_in_several_responses(stream):
    half = MAX_RESPONSE_BYTES // 2
    proxy = stream(f"CDS a=1*{half} b=1*{half} c=1*{half} d=1*{2 * MAX_RESPONSE_BYTES} e=1")
    assert proxy.request("CDS") == ["CDS a=1 b=1"]
    assert proxy.ack("CDS") == ["CDS c=1"]
    assert proxy.ack("CDS") == ["CDS d=1"]
    assert proxy.ack("CDS") == ["CDS e=1"]
    assert proxy.ack("CDS") == []


def test_the_first_scopes_are_sent_in_one_response_when_all_their_clusters_are_ready(stream):
    """A listener of the proxy becomes active with the first response of scopes."""
    half = MAX_RESPONSE_BYTES // 2
    scopes = f"SRDS g=1*{half} h=1*{half} i=1(a)*{half}"
    proxy = stream("CDS a=1", "EDS a=1", "LDS l=1", scopes)
    proxy.request("LDS")
    assert proxy.request("SRDS") == []
    proxy.request("CDS")
    proxy.request("EDS", "a")
    proxy.ack("CDS")
    assert proxy.ack("EDS") == ["SRDS g=1 h=1 i=1"]
    later = f"SRDS g=2*{half} h=2*{half} i=1(a)*{half} j=2*{half}"
    assert proxy.set_config("CDS a=1", "EDS a=1", "LDS l=1", later) == []
    assert proxy.ack("SRDS") == ["SRDS g=2 h=2"]
    assert proxy.ack("SRDS") == ["SRDS j=2"]


def test_a_rejected_cluster_does_not_delay_the_first_scopes(stream):
    half = MAX_RESPONSE_BYTES // 2
    proxy = stream("CDS a=1", "EDS a=1", f"SRDS g=1*{half} h=1*{half} i=1(a)*{half}")
    proxy.request("CDS")
    assert proxy.request("SRDS") == []
    assert proxy.nack("CDS") == ["SRDS g=1 h=1 i=1"]


def test_a_listener_waits_for_scopes_that_the_proxy_does_not_have(stream):
    """A new listener may serve with the scopes that the proxy has, so it would answer with 404."""
    proxy = stream(*A[:3], "SRDS h=1(a)").serve()
    proxy.request("SRDS")
    proxy.ack_all()
    new = ("CDS a=1 b=1", "EDS a=1 b=1", "LDS l=1 m=1")
    assert proxy.set_config(*new, "SRDS h=1(a) i=1(b)") == ["CDS b=1"]
    proxy.request("EDS", "b")
    proxy.ack("CDS")
    assert proxy.ack("EDS") == ["SRDS i=1", "LDS m=1"]
    proxy.ack_all()
    changed = "SRDS h=2(c) i=1(b)"  # the proxy has a version of h
    newer = ("CDS a=1 b=1 c=1", "EDS a=1 b=1 c=1", "LDS l=2 m=1", changed)
    assert proxy.set_config(*newer) == ["CDS c=1", "LDS l=2"]


def test_a_renewed_certificate_is_sent_without_its_listener(stream):
    proxy = stream("LDS l=1", "SDS s=1 t=1")
    assert proxy.request("LDS") == ["LDS l=1"]
    assert proxy.request("SDS", "s") == ["SDS s=1"]
    proxy.ack_all()
    assert proxy.set_config("LDS l=1", "SDS s=2 t=2") == ["SDS s=2"]


def test_a_rejected_cluster_does_not_delay_a_route_that_is_subscribed_again(stream):
    proxy = stream(*A).serve()
    assert proxy.set_config(*A[:3], "RDS r=2(a)") == ["RDS r=2"]
    proxy.request("RDS", unsubscribe="r")  # so the proxy does not have r=2, even if it acknowledges it later
    proxy.set_config(*A_AND_B)
    proxy.nack("CDS")  # rejects b
    assert proxy.ack("RDS", "r") == ["RDS r=2"]


def test_a_resource_of_a_rejected_response_is_sent_again_if_it_was_unwanted_for_a_moment(stream):
    proxy = stream("SDS s=1 t=1")
    proxy.request("SDS", "s t")
    proxy.ack_all()
    assert proxy.set_config("SDS s=2 t=2") == ["SDS s=2 t=2"]
    assert proxy.nack("SDS") == ["SDS s=2"]
    assert proxy.set_config("SDS s=2") == []
    assert proxy.set_config("SDS s=2 t=2") == []
    assert proxy.ack("SDS") == ["SDS t=2"]  # the proxy still has t=1


class CountingDict(dict):
    """Counts how often it is iterated."""

    iterations = 0

    def items(self):
        self.iterations += 1
        return super().items()


def test_shared_resources_are_compared_once_for_all_proxies(stream):
    proxies = [stream(*A).serve() for _ in range(3)]
    for proxy in proxies:
        proxy.session.set_config(proxies[0].session.config)
        proxy.session.next_responses()
    clusters = CountingDict(proxies[0].session.config[CLUSTER])
    for version in ("2", "3", "4"):
        wanted = {**config(*A[1:3], f"RDS r={version}(a)"), CLUSTER: clusters}
        for proxy in proxies:
            proxy.session.set_config(wanted)
            assert [written(response) for response in proxy.session.next_responses()] == [f"RDS r={version}"]
            proxy.session.receive(DeltaRequest(ROUTES, nonce=next(iter(proxy.session.subscriptions[ROUTES].in_flight))))
    assert clusters.iterations == 1
    assert proxies[0].request("CDS", initial="a=0") == ["CDS a=1", "EDS a=1"]


def test_a_settled_session_keeps_only_references_to_shared_resources(stream):
    one, other = stream(*A).serve(), stream(*A).serve()
    for proxy in (one, other):
        proxy.session.set_config(one.session.config)
        assert proxy.session.next_responses() == []
    for subscription, twin in zip(
        one.session.subscriptions.values(), other.session.subscriptions.values(), strict=True
    ):
        assert not subscription.sent.overrides
        assert not subscription.acknowledged.overrides
        assert subscription.acknowledged.base.common is twin.acknowledged.base.common
        assert subscription.subscribed is twin.subscribed


def test_equal_responses_to_several_proxies_are_encoded_once(stream):
    names = [f"n{number}" for number in range(MIN_CACHED_RESOURCES)]
    wanted = config(f"CDS {' '.join(f'{name}=1' for name in names)}")
    sent = []
    for _ in range(2):
        proxy = stream()
        proxy.session.receive(DeltaRequest(CLUSTER))
        proxy.session.set_config(wanted)
        sent += [write_response(response) for response in proxy.session.next_responses()]
    assert sent[0] is sent[1]


def test_a_proxys_own_resources_are_sent_in_one_response_with_few_shared_resources(stream, monkeypatch):
    both = Resources({"a": Encoded(b"a", "1")}, {"b": Encoded(b"b", "1")})
    proxy = stream()
    proxy.session.set_config({CLUSTER: both})
    assert proxy.request("CDS") == ["CDS a=1 b=1"]
    monkeypatch.setattr(versions, "MAX_MIXED_BYTES", 0)
    proxy = stream()
    proxy.session.set_config({CLUSTER: both})
    assert proxy.request("CDS") == ["CDS a=1"]
    assert proxy.ack("CDS") == ["CDS b=1"]


def test_a_resource_that_becomes_shared_is_not_sent_again(stream):
    one, two = Encoded(b"a", "1"), Encoded(b"b", "1")
    proxy = stream()
    proxy.session.set_config({CLUSTER: Resources({"a": one}, {"b": two})})
    proxy.request("CDS")
    proxy.ack_all()
    for resources in (Resources({"a": one, "b": two}, {}), Resources({"b": two}, {"a": one})):
        proxy.session.set_config({CLUSTER: resources})
        assert proxy.session.next_responses() == []


def test_after_a_reconnect_a_cluster_stays_until_the_proxy_reports_its_listeners(stream):
    proxy = stream("CDS b=1", "LDS l=2(b)")
    assert proxy.request("CDS", initial="a=1 b=1") == []
    assert proxy.request("LDS", initial="l=1(a)") == ["LDS l=2"]
    assert proxy.ack("LDS") == ["CDS -a"]
