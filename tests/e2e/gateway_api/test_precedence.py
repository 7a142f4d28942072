"""Which of several routes of a host gets a request: what the reference of HTTPRouteRule.matches says of precedence."""

import time

from tests.e2e.gateway_api.objects import edge_gateway, edge_route, fields, path, rule_of
from tests.e2e.gateway_api.site import Site
from tests.waiting import until
from tests.wire import Address

FIELDS = fields(a="1", b="1", c="1")
ANY = "app.example"


def answer(site: Site, address: Address, target: str, method: str = "GET") -> str:
    return site.ask(address, f"{ANY}{target}", method=method, a="1", b="1", c="1").answered_by


def wait_for_a_later_creation_time(site: Site, older: str) -> None:
    """Wait until an object that is created now is newer than another; creation times are in whole seconds."""
    created = site.host.get(older, site.namespace)["metadata"]["creationTimestamp"]
    until(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > created, f"a second after {created}")


def test_a_method_precedes_headers_and_a_longer_prefix_precedes_both(site: Site) -> None:
    """Report 17; the routes are in the order of their creation, which decides nothing here."""
    site.apply(
        edge_gateway(),
        edge_route("c", rule_of("v3", matches=[{**path("/"), "headers": FIELDS}]), hosts=[ANY]),
        edge_route("a", rule_of("v1", matches=[{**path("/"), "method": "GET"}]), hosts=[ANY]),
        edge_route("b", rule_of("v2", matches=[path("/api")]), hosts=[ANY]),
    )
    address = site.accepted("a", "b", "c")
    assert answer(site, address, "/") == "v1"
    assert answer(site, address, "/api/x") == "v2"
    assert answer(site, address, "/", method="POST") == "v3"


def test_the_older_of_two_routes_wins_also_after_it_is_edited(site: Site) -> None:
    """Report 17. Exact and RegularExpression of a header rank alike, so the age decides, and then the name."""
    older = {**path("/"), "headers": [{"name": "version", "value": "o.*", "type": "RegularExpression"}]}
    newer = {**path("/"), "headers": fields(version="one")}
    site.apply(edge_gateway(), edge_route("z", rule_of("v1", matches=[older]), hosts=[ANY]))
    wait_for_a_later_creation_time(site, "httproute/z")
    site.apply(edge_route("a", rule_of("v2", matches=[newer]), hosts=[ANY]))
    address = site.accepted("a", "z")
    assert site.ask(address, f"{ANY}/", version="one").answered_by == "v1"
    site.patch("httproute/z", {"rules": [rule_of("v3", matches=[older])]})
    until(lambda: site.ask(address, f"{ANY}/", version="one").answered_by == "v3", "the edited route")
