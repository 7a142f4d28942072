from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.test_unreachable_routes import MATCHES, REQUESTS, fits

from headgate.matching.conditions import conjunction
from headgate.matching.intersection import intersect
from headgate.matching.solver import are_disjoint, covers
from headgate.model.requests import Match, Path


@given(MATCHES, MATCHES, st.lists(REQUESTS, min_size=20, max_size=20))
def test_the_intersection_of_two_matches_fits_the_requests_that_fit_both(one, other, requests):
    both = intersect(one, other)
    for request in requests:
        assert (fits(one, request) and fits(other, request)) is (both is not None and fits(both, request))


@given(MATCHES, MATCHES, st.lists(REQUESTS, min_size=20, max_size=20))
def test_conditions_that_cover_or_exclude_each_other_do_so_for_every_text(one, other, requests):
    texts = [request.target.partition("?")[0] for request in requests]
    texts += [value for request in requests for _, value in request.headers]
    for outer in conjunction(one):
        for inner in conjunction(other):
            for text in (item for item in texts if inner.test.fits(item)):
                assert outer.test.fits(text) or not covers(outer.test, inner.test)
                assert not outer.test.fits(text) or not are_disjoint(outer.test, inner.test)


def test_a_path_that_follows_from_the_first_one_is_left_out():
    one, other = Path(kind="prefix", value="/a/b"), Path(kind="regex", value="(?:/a).*")
    assert intersect(Match(path=one), Match(path=other)) == Match(path=one)
    assert intersect(Match(path=Path(kind="prefix", value="/a")), Match(path=Path(kind="prefix", value="/ab"))) is None
