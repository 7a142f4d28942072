"""Redirects, merged header changes, and fractions of mirrored requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.envoy.planned_routes import FINEST, MirrorPlan
from headgate.envoy.route_filters import ListenerInfo, complete_redirect, header_fields, merge, rewritten_host
from headgate.envoy.routes import fraction
from headgate.model.requests import Filters, HeaderEdit, Redirect, Rewrite

PLAIN = ListenerInfo(scheme="http", port=80)
ODD = ListenerInfo(scheme="http", port=8080, host="shop.example")
SECURE = ListenerInfo(scheme="https", port=443)


@pytest.mark.parametrize(
    ("listener", "wanted", "completed"),
    [
        (PLAIN, Redirect(), Redirect(scheme="http", port=80)),
        (PLAIN, Redirect(scheme="https"), Redirect(scheme="https", port=443)),
        (PLAIN, Redirect(port=8080), Redirect(scheme="http", port=8080)),
        (PLAIN, Redirect(scheme="https", port=443), Redirect(scheme="https", port=443)),
        (SECURE, Redirect(scheme="http"), Redirect(scheme="http", port=80)),
        (SECURE, Redirect(port=80), Redirect(scheme="https", port=80)),
        (ODD, Redirect(), Redirect(scheme="http", port=8080)),
        (ODD, Redirect(scheme="https"), Redirect(scheme="https", hostname="shop.example")),
        (ODD, Redirect(port=80, hostname="out.example"), Redirect(scheme="http", hostname="out.example")),
        (ListenerInfo(scheme="http", port=8080), Redirect(scheme="https"), Redirect(scheme="https", port=443)),
        (PLAIN, Redirect(scheme="ftp"), Redirect(scheme="ftp", port=80)),
    ],
)
def test_a_redirect_takes_missing_fields_from_the_listener(listener, wanted, completed):
    assert complete_redirect(wanted, listener) == completed


def test_a_shares_header_change_replaces_the_change_of_its_route():
    route = HeaderEdit(set=(("X-A", "1"), ("b", "1")), add=(("c", "1"), ("d", "1")), remove=("e",))
    share = HeaderEdit(set=(("x-a", "2"),), add=(("d", "2"),), remove=("b", "C"))
    whole = merge(Filters(request=route), Filters(request=share))
    assert whole.request == HeaderEdit(set=(("x-a", "2"),), add=(("d", "1"), ("d", "2")), remove=("e", "b", "C"))


def test_a_change_of_host_is_rendered_as_a_host_rewrite():
    """Envoy rejects the whole route table if Host is changed like other headers."""
    edit = Filters(request=HeaderEdit(set=(("Host", "a.example"),), remove=("HOST",)))
    assert rewritten_host(edit) == "a.example"
    assert header_fields(edit)["request_headers_to_add"] == header_fields(edit)["request_headers_to_remove"] == []
    assert rewritten_host(merge(Filters(rewrite=Rewrite(hostname="b.example")), edit)) == "a.example"
    assert rewritten_host(merge(edit, Filters())) == "a.example"


@pytest.mark.parametrize(
    ("numerator", "denominator", "rendered"),
    [
        (42, 100, (42, 100)),
        (5, 1000, (50, 10_000)),
        (1, 3, (333_333, FINEST)),
        (2, 3, (666_667, FINEST)),
        (1, 1, (100, 100)),
    ],
)
def test_a_fraction_has_the_smallest_exact_denominator(numerator, denominator, rendered):
    """R45, R46, R48."""
    assert fraction(MirrorPlan(cluster="copies", numerator=numerator, denominator=denominator)) == rendered


@given(st.data())
def test_a_fraction_is_rounded_to_the_nearest_millionth(data):
    denominator = data.draw(st.integers(1, 2**31))
    numerator = data.draw(st.integers(0, denominator))
    found, parts = fraction(MirrorPlan(cluster="copies", numerator=numerator, denominator=denominator))
    assert 0 <= found <= parts
    assert abs(found * denominator - numerator * parts) * 2 * FINEST <= parts * denominator
