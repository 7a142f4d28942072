"""What redirects leave open, what becomes of header changes that are made twice, and fractions of copies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.envoy.route_filters import ListenerInfo, complete_redirect, header_fields, merge, rewritten_host
from headgate.envoy.route_plan import MirrorPlan
from headgate.envoy.routes import FINEST, fraction
from headgate.model.requests import Filters, HeaderEdit, Redirect, Rewrite

PLAIN = ListenerInfo(scheme="http", port=80)
ODD = ListenerInfo(scheme="http", port=8080, host="shop.example")
SECURE = ListenerInfo(scheme="https", port=443)


@pytest.mark.parametrize(
    ("entrance", "wanted", "said"),
    [
        (PLAIN, Redirect(), Redirect(scheme="http")),
        (PLAIN, Redirect(scheme="https"), Redirect(scheme="https")),
        (PLAIN, Redirect(port=8080), Redirect(scheme="http", port=8080)),
        (PLAIN, Redirect(scheme="https", port=443), Redirect(scheme="https")),
        (SECURE, Redirect(scheme="http"), Redirect(scheme="http")),
        (SECURE, Redirect(port=80), Redirect(scheme="https", port=80)),
        (ODD, Redirect(), Redirect(scheme="http", port=8080)),
        (ODD, Redirect(scheme="https"), Redirect(scheme="https", hostname="shop.example")),
        (ODD, Redirect(port=80, hostname="out.example"), Redirect(scheme="http", hostname="out.example")),
        (ListenerInfo(scheme="http", port=8080), Redirect(scheme="https"), Redirect(scheme="https", port=443)),
        (PLAIN, Redirect(scheme="ftp"), Redirect(scheme="ftp", port=80)),
    ],
)
def test_a_redirect_takes_what_it_leaves_open_from_where_the_request_came_in(entrance, wanted, said):
    assert complete_redirect(wanted, entrance) == said


def test_the_later_change_of_a_header_counts():
    route = HeaderEdit(set=(("X-A", "1"), ("b", "1")), add=(("c", "1"), ("d", "1")), remove=("e",))
    share = HeaderEdit(set=(("x-a", "2"),), add=(("d", "2"),), remove=("b", "C"))
    whole = merge(Filters(request=route), Filters(request=share))
    assert whole.request == HeaderEdit(set=(("x-a", "2"),), add=(("d", "1"), ("d", "2")), remove=("e", "b", "C"))


def test_the_host_is_rewritten_and_never_edited_as_a_header():
    """Envoy refuses the whole table when it is told to edit Host like other headers."""
    edit = Filters(request=HeaderEdit(set=(("Host", "a.example"),), remove=("HOST",)))
    assert rewritten_host(edit) == "a.example"
    assert header_fields(edit)["request_headers_to_add"] == header_fields(edit)["request_headers_to_remove"] == []
    assert rewritten_host(merge(Filters(rewrite=Rewrite(hostname="b.example")), edit)) == "a.example"
    assert rewritten_host(merge(edit, Filters())) == "a.example"


@pytest.mark.parametrize(
    ("numerator", "denominator", "told"),
    [
        (42, 100, (42, 100)),
        (5, 1000, (50, 10_000)),
        (1, 3, (333_333, FINEST)),
        (2, 3, (666_667, FINEST)),
        (1, 1, (100, 100)),
    ],
)
def test_a_fraction_is_told_in_the_coarsest_parts_that_are_exact(numerator, denominator, told):
    """R45, R46, R48."""
    assert fraction(MirrorPlan(cluster="copies", numerator=numerator, denominator=denominator)) == told


@given(st.data())
def test_a_fraction_is_off_by_half_a_millionth_at_most(data):
    denominator = data.draw(st.integers(1, 2**31))
    numerator = data.draw(st.integers(0, denominator))
    told, parts = fraction(MirrorPlan(cluster="copies", numerator=numerator, denominator=denominator))
    assert 0 <= told <= parts
    assert abs(told * denominator - numerator * parts) * 2 * FINEST <= parts * denominator
