"""nginx's PCRE matches the same texts as RE2 matches with the expression before its translation."""

from pathlib import Path

import pytest
from tests.differential.backends import ask
from tests.differential.http_exchange import Message
from tests.ports import free_port
from tests.render.nginx.nginx_process import needs_nginx, serving
from tests.wire import Address

from headgate.render.nginx.regexes import Untranslatable, to_pcre
from headgate.render.nginx.syntax import block, pattern
from headgate.render.output import Rendered
from headgate.resources.regexes import fault, matches

PATTERNS = (
    "a",
    "a|ab",
    "(a|b)+c?",
    "(?P<name>a)(?P<other>b)",
    "(?i)AB",
    "a(?i:B)c",
    "[a-c]+",
    "[^a-c]+",
    "[]a]+",
    "[^]a]+",
    "[a[]b",
    "[[:alpha:]]+(x)?",
    "[[:^digit:]]+",
    "[\\]\\-a]+",
    "[^^](a)?",
    "\\Qa.b(\\E(c)",
    "\\x41\\x{42}",
    "\\d{2,3}",
    "\\w+\\s\\w+",
    "\\ba\\b.*",
    "^a$",
    "\\Aa\\z",
    "a{2}b*?",
    ".*",
    "(?s).+",
    "(?m)^a",
    '\\$\\{a\\}"\\\\',
    "",
    "a.b",
    "(?U)a+",
    "\\.\\*\\+\\?",
    "#a b",
    "()",
    "a||b",
)
TEXTS = (
    "a",
    "b",
    "ab",
    "abc",
    "AB",
    "aBc",
    "]",
    "^a",
    "a]",
    "[b",
    "a.b(c",
    "12",
    "1234",
    "a b",
    "xyx",
    "aab",
    '${a}"\\',
    "-",
)
UNTRANSLATABLE = ("\\pL", "\\PN", "é", "\\C", "\\v", "\\x{e9}", "\\xe9", "\\101")


@needs_nginx
async def test_translated_expressions_match_the_same_texts(tmp_path: Path) -> None:
    assert not any(map(fault, PATTERNS))
    port = free_port()
    maps = [
        line
        for index, text in enumerate(PATTERNS)
        for line in block(f"map $http_x $m{index}", [pattern("\\A" + to_pcre(text)) + " 1;", "default 0;"])
    ]
    bits = "".join(f"${{m{index}}}" for index in range(len(PATTERNS)))
    server = block(
        "server", [f"listen 127.0.0.1:{port};", "location / {", f'add_header bits "{bits}";', "return 200;", "}"]
    )
    lines = ["pid nginx.pid;", "events {}", *block("http", ["access_log off;", *maps, *server]), ""]
    rendered = Rendered(main="nginx.conf", files={"nginx.conf": "\n".join(lines)})
    async with serving(rendered, tmp_path):
        for text in TEXTS:
            tally = await ask(Address("127.0.0.1", port), Message("1.1", "GET", "/", "a", (("x", text),)).encoded(), 1)
            found = tally.heads[200].get("bits")
            wanted = "".join(str(int(matches(item, text))) for item in PATTERNS)
            wrong = [item for item, one, two in zip(PATTERNS, found, wanted, strict=True) if one != two]
            assert not wrong, f"{text!r} is matched differently by {wrong}"


@pytest.mark.parametrize("text", UNTRANSLATABLE)
def test_an_expression_without_an_equal_in_pcre_is_not_translated(text: str) -> None:
    assert not fault(text)
    with pytest.raises(Untranslatable):
        to_pcre(text)
