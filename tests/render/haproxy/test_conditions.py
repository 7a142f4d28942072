"""HAProxy's conditions match the same requests as the model's."""

from pathlib import Path

from tests.differential.backends import ask
from tests.render.haproxy.haproxy_process import needs_haproxy, serving
from tests.render.shop import HOST, RenderedShop, shop
from tests.wire import Address

from headgate.model.evaluate import RequestParts, first_unmet
from headgate.model.requests import Header, Match, Query, Request, Text
from headgate.model.requests import Path as PathCondition
from headgate.model.routing import Route, Split
from headgate.render.haproxy.conditions import MOST_VALUES
from headgate.render.haproxy.configuration import render
from headgate.render.omissions import OmissionReason
from headgate.render.proxy_ports import select

PATTERNS = (
    "",
    "a",
    "a|b",
    "^a$",
    "(?i)ABC",
    "a.c",
    "é",
    "a[é-ü]c",
    "(?i)É.*",
    r"\pL+",
    r"\p{Greek}+",
    r"[[:alpha:]]+",
    r"\bab\b.*",
    r"a\Q.\Ec",
    r"\Qa.c",
    r"(a)(b)?(?P<x>c)",
    r"\x{e9}+",
    "a{2,3}",
    "a'b",
    'a"b\\\\c',
    "a #b",
    "(?U)a+b",
    r"\d+,\d+",
    "}",
    "%[src]",
    "[]a]+",
    "[^]a]+",
    "[a[]b",
    "(?m)^a",
    "a{2}b*?",
)
TEXTS = ("", "a", "b", "abc", "ABC", "a.c", "aéc", "éé", "É1", "αβ", "ab c", "aa", "aaaa", "a'b", 'a"b\\c', "a #b")
MORE_TEXTS = ("aab", "a]", "[b", "1,2", "}", "%[src]", "1")


def routes_of(web: RenderedShop, matches: list[Match]) -> list[Route]:
    """Return a route for each match, with a path of its own."""
    return [
        Route(
            split=Split(targets=(web.target(0),)),
            match=Match(path=PathCondition(kind="exact", value=f"/{number}"), headers=match.headers, query=match.query),
        )
        for number, match in enumerate(matches)
    ]


async def differing(
    web: RenderedShop, matches: list[Match], requests: list[tuple[str, tuple[tuple[str, str], ...]]]
) -> list[str]:
    """Send each request (query and headers) for each match; return the pairs for which HAProxy and the model differ."""
    found = []
    for number, route in enumerate(routes_of(web, matches)):
        for query, headers in requests:
            request = Request(authority=HOST, target=f"/{number}{query}", headers=headers)
            fields = (f"{name}: {value}\r\n" for name, value in (("host", HOST), *headers))
            head = f"GET {request.target} HTTP/1.1\r\n{''.join(fields)}\r\n".encode()
            tally = await ask(Address("127.0.0.1", web.port), head, 1)
            wanted = 404 if first_unmet(route.match, RequestParts(request)) else "member 0"
            if set(tally.counted) != {wanted}:
                found.append(f"{matches[number]} for {query!r} {headers}: {tally.counted}")
    return found


@needs_haproxy
async def test_headers_match_the_same_expressions_and_texts(tmp_path: Path) -> None:
    matches = [Match(headers=(Header(name="x-a", text=Text(value=text, regex=True)),)) for text in PATTERNS]
    matches += [Match(headers=(Header(name="x-a", text=Text(value=text)),)) for text in (*TEXTS, *MORE_TEXTS)]
    requests = [("", (("x-a", text),)) for text in (*TEXTS, *MORE_TEXTS)]
    requests += [("", ()), ("", (("x-a", "1"), ("X-A", "2"))), ("", (("x-a", "a"), ("x-a", ""), ("x-a", "b")))]
    async with shop() as web:
        rendered = render(select(web.mesh(*routes_of(web, matches))))
        assert not rendered.omissions
        async with serving(rendered, tmp_path):
            assert await differing(web, matches, requests) == []


@needs_haproxy
async def test_the_first_value_of_a_query_parameter_matches_up_to_the_next_separator(tmp_path: Path) -> None:
    texts = [("1", False), ("", False), ("a.c", False), ("%2F", False), ("a;q=1", False)]
    texts += [("1.*", True), (".*", True), ("", True), ("1.r", True), ("a|b&.*", True), ("(?P<x>a)+", True)]
    matches = [Match(query=(Query(name=name, text=Text(value=v, regex=r)),)) for v, r in texts for name in ("q", "q.r")]
    queries = ("", "?", "?q", "?q=", "?q=1", "?q=12&r", "?r=q=1&q=1", "?q=2&q=1", "?q&q=1", "?qq=1", "?q=1&r=2")
    more = (
        "?q.r=1",
        "?qxr=1",
        "?q=a;q=1",
        "?q=%2F",
        "?q=%2f",
        "?q=b&x",
        "?q=aa",
        "?x=?q=1",
        "?q=1?q=2",
        "?&q=1",
        "?q=a.c",
    )
    async with shop() as web, serving(render(select(web.mesh(*routes_of(web, matches)))), tmp_path):
        assert await differing(web, matches, [(query, ()) for query in (*queries, *more)]) == []


@needs_haproxy
async def test_a_request_with_too_many_values_of_a_matched_header_is_refused(tmp_path: Path) -> None:
    match = Match(headers=(Header(name="x-a", text=Text(value="1(,1)*", regex=True)),))
    async with shop() as web, serving(render(select(web.mesh(*routes_of(web, [match])))), tmp_path):
        for count, wanted in ((MOST_VALUES, "member 0"), (MOST_VALUES + 1, 400)):
            lines = ["GET /0 HTTP/1.1", f"host: {HOST}", *["x-a: 1"] * count, "", ""]
            head = "\r\n".join(lines).encode()
            assert await web.counted(1, head=head) == {wanted: 1}


async def test_an_expression_that_pcre_reads_differently_is_named() -> None:
    async with shop() as web:
        matches = [
            Match(path=PathCondition(kind="regex", value=value)) for value in (r"/a\v", r"/\C", "/[[.]", r"/\12")
        ]
        routes = [Route(split=Split(targets=()), match=match, name=str(index)) for index, match in enumerate(matches)]
        rendered = render(select(web.mesh(*routes)))
    assert [item.reason for item in rendered.omissions] == [OmissionReason.REGULAR_EXPRESSION] * len(matches)
    assert [item.where[-1] for item in rendered.omissions] == ["0", "1", "2", "3"]
