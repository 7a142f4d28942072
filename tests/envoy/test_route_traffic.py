"""Every feature of the model in a real Envoy: tests count and inspect the requests at the backends."""

from collections import Counter

import pytest
from tests.draws import fits
from tests.waiting import until

from headgate.model.requests import (
    Filters,
    Header,
    HeaderEdit,
    Match,
    PathEdit,
    Query,
    Redirect,
    Rewrite,
    Text,
    Timeouts,
)
from headgate.model.requests import Path as PathMatch
from headgate.model.routing import Broken, Mirror, PortRef, Route, Split, SplitMatch, Target
from headgate.resources.meta import Key


def mirror_to(ref: PortRef, numerator: int = 1, denominator: int = 1) -> Mirror:
    """Return a mirror to a plain Service."""
    return Mirror(ref=ref, targets=(Target(ref=ref, weight=1),), numerator=numerator, denominator=denominator)


def rule_of_web(number: int = 0) -> dict[str, object]:
    """Return the fields that make a route a rule of an HTTPRoute."""
    return {"origin": Key("gateway.networking.k8s.io", "HTTPRoute", "default", "shop"), "name": str(number)}


def prefix(value: str) -> Match:
    return Match(path=PathMatch(kind="prefix", value=value))


# --- matches


@pytest.mark.parametrize(
    ("match", "fitting", "unfitting"),
    [
        (Match(path=PathMatch(kind="exact", value="/a")), ["/a", "/a?x=1"], ["/a/", "/ab", "/A"]),
        (prefix("/a"), ["/a", "/a/", "/a/b", "/a?x"], ["/ab", "/b/a"]),
        (prefix("/a/"), ["/a", "/a/b"], ["/ab"]),
        (prefix("/"), ["/", "/a/b"], []),
        (Match(path=PathMatch(kind="regex", value="/a[0-9]+")), ["/a1", "/a12?x"], ["/a", "/a1b", "/x/a1"]),
        (
            Match(query=(Query(name="x", text=Text(value="1")),)),
            ["/?x=1", "/?y=2&x=1", "/?x=1&x=2"],
            ["/?x=2&x=1", "/"],
        ),
        (Match(query=(Query(name="x", text=Text(value="[0-9]+", regex=True)),)), ["/?x=12"], ["/?x=1a", "/?x"]),
    ],
)
def test_a_route_matches_requests_by_path_and_query(rig, match, fitting, unfitting):
    rig.apply(rig.route("one", match=match, **rule_of_web()), rig.route("other"))
    assert {path: rig.ask(path).answered_by for path in fitting} == dict.fromkeys(fitting, "one")
    assert {path: rig.ask(path).answered_by for path in unfitting} == dict.fromkeys(unfitting, "other")


def regex(value: str) -> PathMatch:
    return PathMatch(kind="regex", value=value)


@pytest.mark.parametrize(
    ("paths", "to_one", "to_two", "to_other"),
    [
        ((regex("/.*b"), regex("/a.*")), ["/ab", "/a/b", "/ab?x"], ["/b", "/cb?a"], ["/a?b", "/a", "/ac?/b"]),
        ((regex("/a/?.*"), regex("/.*/$")), ["/a/", "/a/b/", "/a/?q"], ["/a", "/a?/", "/ab?/x/"], ["/", "/b/"]),
        ((PathMatch(kind="prefix", value="/a"), regex("/.*x")), ["/a/x", "/a/x?q"], ["/a", "/a/y?x"], ["/ax", "/x"]),
        ((regex("/a.*"), PathMatch(kind="prefix", value="/a/b")), ["/a/b", "/a/b/c?d"], ["/a", "/a/bc?/"], ["/b"]),
        ((regex("/.*a.*"), regex("/.*b.*"), regex("/.*c.*")), ["/abc", "/cab?x"], ["/ab", "/ac?b"], ["/bc?a"]),
    ],
)
def test_a_route_matches_several_conditions_on_the_path_without_the_query(rig, paths, to_one, to_two, to_other):
    """D13: a route can have several path conditions: those of an HTTPRoute rule and of a split's matches."""
    step = SplitMatch(ref=rig.ref("web"), split=Key("split.smi-spec.io", "TrafficSplit", "default", "ab"), match="g/m")
    rig.apply(
        rig.route("one", match=Match(path=paths[0], other_paths=paths[1:]), split_matches=(step,), **rule_of_web()),
        rig.route("two", match=Match(path=paths[0]), **rule_of_web()),
        rig.route("other"),
    )
    asked = {target: rig.ask(target).answered_by for target in (*to_one, *to_two, *to_other)}
    wanted = dict.fromkeys(to_one, "one") | dict.fromkeys(to_two, "two") | dict.fromkeys(to_other, "other")
    assert asked == wanted


def test_a_route_matches_headers_and_methods_and_other_requests_get_404(rig):
    tester = Header(name="x-user", text=Text(value="tester"))
    agent = Header(name="user-agent", text=Text(value=".*Firefox.*", regex=True))
    rig.apply(
        rig.route("one", match=Match(methods=("POST",)), **rule_of_web(0)),
        rig.route("one", match=Match(methods=("GET", "PUT"), headers=(tester, agent)), **rule_of_web(1)),
    )
    assert rig.ask(x_user="tester", user_agent="a Firefox 1").answered_by == "one"
    assert rig.ask(x_user="tester").answered_by == "404"
    assert rig.ask(x_user="tester 2", user_agent="Firefox").answered_by == "404"
    assert rig.ask(user_agent="Firefox").answered_by == "404"


# --- header changes


def test_filters_set_add_and_remove_headers_of_requests_and_responses(rig):
    edit = HeaderEdit(
        set=(("x-set", "100%REQ(x)% of {it}"), ("x-empty", "")), add=(("x-add", "more"),), remove=("x-gone",)
    )
    back = HeaderEdit(set=(("x-server", "hidden"),), add=(("x-new", "yes"),), remove=("content-type",))
    rig.apply(rig.route("one", filters=Filters(request=edit, response=back), **rule_of_web()))
    answer = rig.ask(x_set="old", x_add="some", x_gone="x")
    seen = rig.last_headers("one")
    assert (seen["x-set"], seen["x-empty"], seen["x-add"]) == ("100%REQ(x)% of {it}", "", "some,more")
    assert "x-gone" not in seen
    assert (answer.headers["x-server"], answer.headers["x-new"]) == ("hidden", "yes")


def test_the_filters_of_a_backend_apply_after_those_of_the_route(rig):
    def filters_of(name: str) -> Filters:
        return Filters(request=HeaderEdit(set=(("x-share", name),)), response=HeaderEdit(add=(("x-side", name),)))

    targets = tuple(rig.target(name, filters=filters_of(name)) for name in ("one", "two"))
    route_filters = Filters(request=HeaderEdit(set=(("x-share", "route"), ("x-route", "yes"))))
    rig.apply(Route(split=Split(targets=targets), filters=route_filters, **rule_of_web()))
    answers = [rig.ask() for _ in range(30)]
    assert {answer.answered_by for answer in answers} == {"one", "two"}
    assert all(answer.headers["x-side"] == answer.answered_by for answer in answers)
    for name in ("one", "two"):
        assert {(item.headers["x-share"], item.headers["x-route"]) for item in rig.take_requests(name)} == {
            (name, "yes")
        }


def test_a_header_filter_can_set_the_host(rig):
    rig.apply(rig.route("one", filters=Filters(request=HeaderEdit(set=(("Host", "new.example"),))), **rule_of_web()))
    rig.ask()
    assert rig.last_headers("one")["host"] == "new.example"


# --- redirects and rewrites

PREFIXES = [  # request, matched prefix, replacement, result: the table of the Gateway API, and edge cases
    ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
    ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
    ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
    ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
    ("/foo", "/foo", "/xyz", "/xyz"),
    ("/foo/", "/foo", "/xyz", "/xyz/"),
    ("/foo/bar", "/foo", "", "/bar"),
    ("/foo/", "/foo", "", "/"),
    ("/foo", "/foo", "", "/"),
    ("/foo/", "/foo", "/", "/"),
    ("/foo", "/foo", "/", "/"),
    ("/foo/bar?x=1", "/foo", "/", "/bar?x=1"),
    ("/foo/bar?x=1", "/foo", "/xyz", "/xyz/bar?x=1"),
    ("/bar", "/", "/xyz", "/xyz/bar"),
    ("/a.b/c", "/a.b", "/", "/c"),
]


@pytest.mark.parametrize(("path", "matched", "replacement", "result"), PREFIXES)
def test_rewrites_and_redirects_replace_a_path_prefix(rig, path, matched, replacement, result):
    edit = PathEdit(kind="prefix", value=replacement)
    rig.apply(
        rig.route("one", match=prefix(matched), filters=Filters(rewrite=Rewrite(path=edit)), **rule_of_web()),
    )
    rig.ask(path)
    assert rig.last_path("one") == result
    rig.apply(Route(split=Split(targets=()), match=prefix(matched), redirect=Redirect(path=edit), **rule_of_web()))
    location = rig.ask(path).headers["location"]
    assert location == f"http://web.example:{rig.address.port}{result}"


@pytest.mark.parametrize("value", ["/new", r"/a\1b", "/"])
def test_rewrites_and_redirects_replace_the_path_and_keep_the_query(rig, value):
    edit = PathEdit(kind="full", value=value)
    rewrite = Rewrite(hostname="inner.example", path=edit)
    rig.apply(rig.route("one", match=prefix("/foo"), filters=Filters(rewrite=rewrite), **rule_of_web()))
    rig.ask("/foo/bar?x=1")
    assert rig.last_headers("one", path=f"{value}?x=1")["host"] == "inner.example"
    rig.apply(
        Route(split=Split(targets=()), redirect=Redirect(path=edit, hostname="out.example", port=80), **rule_of_web())
    )
    assert rig.ask("/foo/bar?x=1").headers["location"] == f"http://out.example{value}?x=1"


def test_a_backend_can_have_its_own_rewrite(rig):
    rewrite = Rewrite(hostname="inner.example", path=PathEdit(kind="full", value="/new"))
    target = rig.target("one", filters=Filters(rewrite=rewrite))
    rig.apply(Route(split=Split(targets=(target,)), **rule_of_web()))
    rig.ask("/foo")
    assert rig.last_headers("one", path="/new")["host"] == "inner.example"


@pytest.mark.parametrize(
    ("redirect", "location"),
    [
        (Redirect(scheme="https"), "https://web.example/p"),
        (Redirect(scheme="https", hostname="out.example"), "https://out.example/p"),
        (Redirect(hostname="out.example"), "http://out.example:{port}/p"),
        (Redirect(hostname="out.example", port=80), "http://out.example/p"),
        (Redirect(scheme="https", port=8443), "https://web.example:8443/p"),
        (Redirect(port=8080), "http://web.example:8080/p"),
        (Redirect(status=301), "http://web.example:{port}/p"),
    ],
)
def test_a_redirect_sets_the_location(rig, redirect, location):
    rig.apply(Route(split=Split(targets=()), redirect=redirect, **rule_of_web()))
    for host in ("web.example", f"web.example:{rig.address.port}"):
        answer = rig.ask("/p", host=host)
        assert (answer.status, answer.headers["location"]) == (redirect.status, location.format(port=rig.address.port))


# --- timeouts


@pytest.mark.parametrize(
    "timeouts", [Timeouts(request=150), Timeouts(backend=150), Timeouts(request=5000, backend=150)]
)
def test_a_request_to_a_slow_backend_times_out_with_504(rig, timeouts):
    rig.echo("one").hangs = True
    rig.apply(rig.route("one", timeouts=timeouts, **rule_of_web()))
    assert rig.ask().status == 504


# --- failing shares


def test_a_failing_share_of_a_split_is_answered_with_its_status(rig):
    broken = (Broken(weight=2, reason="BackendNotFound", status=500), Broken(weight=1, reason="NoReadyEndpoints"))
    rig.apply(Route(split=Split(targets=(rig.target("one", 1),), broken=broken), **rule_of_web()))
    counts = rig.load(2000)
    assert fits(counts["500"], 1 / 2, of=2000)
    assert fits(counts["503"], 1 / 4, of=2000)
    assert counts["one"] == 2000 - counts["500"] - counts["503"]


@pytest.mark.parametrize("status", [500, 503])
def test_a_route_whose_only_share_fails_answers_every_request_with_the_status_of_the_share(rig, status):
    rig.apply(Route(split=Split(targets=(), broken=(Broken(weight=1, reason="x", status=status),)), **rule_of_web()))
    assert rig.load(20) == {str(status): 20}


# --- mirrors (specification 002)


@pytest.mark.parametrize("percent", [0, 42, 100])
def test_a_mirror_gets_its_percentage_of_the_requests(rig, percent):
    """R45, R47, R50, R59: exact for 0 and 100 %, random otherwise; the Host is unchanged.

    Each case has its own backend, because the counter of a removed cluster disappears 11 s later.
    """
    name = f"copies-{percent}"
    copies = rig.echo(name)
    mirror = mirror_to(rig.ref(name), numerator=percent, denominator=100)
    rig.apply(rig.route("one", mirrors=(mirror,), **rule_of_web()))
    assert rig.load(2000) == {"one": 2000}
    until(lambda: len(copies.seen) == rig.count(f"mirror/default/{name}/80.upstream_rq_total"), "the copies arrive")
    assert fits(len(copies.seen), percent / 100, of=2000)
    assert {item.headers["host"] for item in copies.seen} <= {"web.example"}


def test_a_fraction_of_a_mirror_is_exact_in_envoys_configuration(rig):
    """R46: 5/1000 is 50 of 10000 in Envoy."""
    rig.apply(rig.route("one", mirrors=(mirror_to(rig.ref("two"), numerator=5, denominator=1000),), **rule_of_web()))
    assert '{"numerator": 50, "denominator": "TEN_THOUSAND"}' in rig.configured("RoutesConfigDump")


def test_a_mirror_sends_each_copy_to_one_endpoint(rig):
    """R53, R60: one copy of each request, for any number of endpoints and backends."""
    copies = [rig.echo(f"copy{number}") for number in range(3)]
    mirror = mirror_to(rig.ref("copies"))
    rig.apply(rig.route("one", "other", mirrors=(mirror,), **rule_of_web()), services={"copies": copies})
    assert rig.load(300) == {"one": 150, "other": 150}
    until(lambda: sum(len(echo.seen) for echo in copies) == 300, "the copies have arrived")
    assert all(len(echo.seen) > 50 for echo in copies)


def test_every_mirror_of_a_route_gets_copies_but_none_of_another_routes_requests(rig):
    """R58."""
    mirrors = tuple(mirror_to(rig.ref(name)) for name in ("two", "other"))
    rig.apply(
        rig.route("one", match=prefix("/a"), mirrors=mirrors, **rule_of_web(0)), rig.route("one", **rule_of_web(1))
    )
    two, other = rig.echo("two"), rig.echo("other")
    assert rig.load(40, path="/b") == {"one": 40}
    assert rig.load(50, path="/a") == {"one": 50}
    until(lambda: (len(two.seen), len(other.seen)) == (50, 50), "the copies have arrived")


@pytest.mark.parametrize("fault", ["fails", "hangs", "dead"])
def test_a_failing_mirror_fails_no_request(rig, fault):
    """R44. Each fault has its own backend: copies without a response use up the backend's limit of copies in flight."""
    copies = rig.echo(fault)
    copies.hangs = fault == "hangs"
    copies.status = "500 Internal Server Error"
    if fault == "dead":
        copies.close()
    mirror = mirror_to(rig.ref(fault))
    rig.apply(rig.route("one", mirrors=(mirror,), **rule_of_web()))
    assert rig.load(600) == {"one": 600}
    if fault != "dead":
        until(lambda: len(copies.seen) > 50, "some copies have arrived")


def test_a_mirror_without_endpoints_fails_no_request(rig):
    """D14."""
    mirror = mirror_to(rig.ref("empty"))
    rig.apply(rig.route("one", mirrors=(mirror,), **rule_of_web()), services={"empty": ()})
    assert rig.load(200) == {"one": 200}


def test_a_removed_mirror_gets_no_more_copies(rig):
    """R55."""
    rig.apply(rig.route("one", mirrors=(mirror_to(rig.ref("two")),), **rule_of_web()))
    two = rig.echo("two")
    rig.load(10)
    until(lambda: len(two.seen) == 10)
    rig.apply(rig.route("one", **rule_of_web()))
    rig.load(50)
    assert Counter(item.path for item in two.seen) == {"/": 10}
    until(lambda: "mirror/" not in rig.configured("ClustersConfigDump"), "the cluster is removed")  # after 11 s
