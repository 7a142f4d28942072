"""The answers of proxies to preflights."""

import pytest

from headgate.matching.intersection import intersect
from headgate.model.cors import Cors, announcing, preflight_answer
from headgate.model.evaluate import RequestParts, first_unmet
from headgate.model.requests import Match, Request

POLICY = Cors(origins=("https://a.example", "https://*.b.example"))
PREFLIGHT = (("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT"))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://a.example", True),
        ("http://a.example", False),
        ("https://a.example:8443", False),
        ("https://x.b.example", True),
        ("https://y.x.b.example", True),
        ("https://b.example", False),
        ("https://.b.example", False),
        ("https://xbbexample", False),
    ],
)
def test_a_policy_allows_its_origins(origin, allowed):
    """`*` stands for any characters, at least one."""
    request = Request(method="OPTIONS", headers=(("origin", origin), PREFLIGHT[1]))
    verb = "allows" if allowed else "does not allow"
    assert preflight_answer(POLICY, request) == f"the policy {verb} the origin {origin}"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("PUT", PREFLIGHT),
        ("OPTIONS", PREFLIGHT[:1]),
        ("OPTIONS", PREFLIGHT[1:]),
        ("OPTIONS", (*PREFLIGHT[:1], (PREFLIGHT[1][0], ""))),
    ],
)
def test_other_requests_are_forwarded(method, headers):
    assert preflight_answer(POLICY, Request(method=method, headers=headers)) == ""


@pytest.mark.parametrize(("methods", "fits"), [(("PUT",), True), (("GET", "PUT"), True), (("GET",), False)])
def test_a_preflight_fits_the_matches_of_the_method_that_it_announces(methods, fits):
    match = intersect(Match(methods=("OPTIONS",)), Match(headers=announcing(methods)))
    assert match
    parts = RequestParts(Request(method="OPTIONS", headers=PREFLIGHT))
    assert (first_unmet(match, parts) is None) == fits
