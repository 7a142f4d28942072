"""Cross-origin resource sharing: the scripts of which websites may send requests, and read the responses (Fetch, 3.2).

Before a request that is not a simple one, a browser sends a preflight, which the proxy answers. Only browsers obey the answers,
so a policy protects their users, and not the backends.
"""

import re
from collections.abc import Sequence

from headgate.model.requests import Header, Request, Text
from headgate.resources.meta import Value

PREFLIGHT = 200
_ORIGIN, _METHOD = "origin", "access-control-request-method"


class Cors(Value, frozen=True, kw_only=True):
    """A policy. `origins` are such as `https://www.example.com`; `*` stands for any characters, at least one.

    `methods`, `headers` and `exposed` have the names that preflights and responses list; `max_age` is how many seconds a browser may
    keep the answer to a preflight.
    """

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    credentials: bool = False
    max_age: int = 5


def preflight_answer(cors: Cors | None, request: Request) -> str:
    """Return what the answer to a preflight says, in words; empty for other requests, and without a policy."""
    headers = {name.lower(): value for name, value in request.headers}
    origin = headers.get(_ORIGIN)
    if cors is None or request.method != "OPTIONS" or not origin or not headers.get(_METHOD):
        return ""
    allowed = any(re.fullmatch(origin_pattern(text), origin) for text in cors.origins)
    return f"the policy {'allows' if allowed else 'does not allow'} the origin {origin}"


def origin_pattern(origin: str) -> str:
    """Return the regular expression for the origins that a policy's text stands for."""
    return ".+".join(map(re.escape, origin.split("*")))


def from_origins(cors: Cors) -> Header:
    """Return the condition on requests from origins that a policy allows."""
    return Header(name=_ORIGIN, text=Text(value="|".join(map(origin_pattern, cors.origins)), regex=True))


def announcing(methods: Sequence[str] = ()) -> tuple[Header, ...]:
    """Return the conditions on the headers of a preflight that announces a request with one of some methods, by default any."""
    announced = Text(value="|".join(methods) or ".+", regex=len(methods) != 1)
    return Header(name=_METHOD, text=announced), Header(name=_ORIGIN, text=Text(value=".+", regex=True))


def words(cors: Cors) -> str:
    """Return a policy in words: `origins https://a.example, methods GET PUT, kept for 5 s`."""
    parts = (
        f"origins {_listed(cors.origins)}",
        f"methods {_listed(cors.methods)}" if cors.methods else "",
        f"headers {_listed(cors.headers)}" if cors.headers else "",
        f"exposed headers {_listed(cors.exposed)}" if cors.exposed else "",
        "with credentials" if cors.credentials else "",
        f"kept for {cors.max_age} s",
    )
    return ", ".join(part for part in parts if part)


def _listed(texts: Sequence[str]) -> str:
    return " ".join(texts) or "none"
