"""Persistent sessions: the requests of a session go to the endpoint that served its first one (GEP-1619)."""

import re
from typing import Literal

from headgate.model.requests import Header, Path, Text
from headgate.resources.meta import Value


class PersistentSession(Value, frozen=True, kw_only=True):
    """The sessions of a rule. The proxy issues their token in the cookie or header `name`, and finds the endpoint by it.

    A session ends after `seconds`, which only permanent cookies have; 0 means no limit. `service` (`namespace/name`) has
    them by a policy, for all paths, because several routes can lead to it; it is empty for those of a rule.
    """

    kind: Literal["cookie", "header"]
    name: str
    seconds: int = 0
    service: str = ""


def carrying(session: PersistentSession) -> Header:
    """Return the condition on requests that have a token."""
    if session.kind == "header":
        return Header(name=session.name.lower(), text=Text(value=".+", regex=True))
    return with_cookie(session.name)


def with_cookie(name: str) -> Header:
    """Return the condition on requests that have a cookie with a value. Proxies join several Cookie headers with commas."""
    return Header(name="cookie", text=Text(value=rf'(?:.*[;,]\s*)?{re.escape(name)}="?[^;,"]+.*', regex=True))


def cookie_path(matched: Path | None) -> str:
    """Return the path of a cookie: that of the route's match, so that routes don't share sessions.

    A prefix fits itself without its slash, too. A semicolon would begin an attribute of the cookie.
    """
    if not matched or matched.kind == "regex" or ";" in matched.value:
        return "/"
    return (matched.value.rstrip("/") or "/") if matched.kind == "prefix" else matched.value


def words(session: PersistentSession) -> str:
    """Return a session in words: `by the cookie user, for 300 s`."""
    return f"by the {session.kind} {session.name}" + (f", for {session.seconds} s" if session.seconds else "")
