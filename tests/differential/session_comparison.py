"""Compare sessions of a real proxy with those of the model: requests with a token stay at the endpoint that the token names."""

from tests.differential.backends import Head
from tests.differential.gateway_lab import GatewayLab
from tests.differential.requests import address_of, connected, head
from tests.differential.routing_expectation import ExpectedShares, expected
from tests.differential.worlds import Sent

from headgate.model.routing import Mesh, Route
from headgate.model.sessions import PersistentSession

AGAIN = 6
"""How often a request with a token is sent."""


def strayed(lab: GatewayLab, mesh: Mesh, sent: Sent, wanted: ExpectedShares, heads: dict[str, Head]) -> str:
    """Send requests again, with the tokens in the responses `heads` of members; return which of them did not stay.

    Copies would be counted as requests, so rules with mirrors are left out.
    """
    route = wanted.decision.route if wanted.decision else None
    session = route.session if route else None
    if route is None or session is None or not wanted.http or wanted.copies:
        return ""
    for member, response in heads.items():
        token = _token(session, response)
        if token is None and session.kind == "cookie":
            return f"the response of {member} has no token of {session}"
        if session.kind == "cookie" and (attributes := _attributes(session, response)) != _of_connection(route, sent):
            return f"the cookie of {member} has the attributes {attributes}"
        again = _with_token(sent, token) if token else sent
        expected_again = expected(mesh, again, name_of=lab.member, draws=lab.draws)
        stays = expected_again.decision and expected_again.decision.route == route
        where = address_of(mesh, again, lab)
        if not token or not stays or where is None or not _arrives(token, expected_again):
            continue  # the token may be a header that other rules match, or that the client's Connection names
        tally = lab.send(where, head(again), AGAIN, **connected(again, wanted))
        if tally.counted.keys() != {member}:
            return f"of the requests with {token}, not all stay at {member}: {dict(tally.counted)}"
    return ""


def _arrives(token: tuple[str, str], wanted: ExpectedShares) -> bool:
    """Return whether the proxy keeps the header with a token."""
    sanitized = wanted.decision.sanitized if wanted.decision else None
    kept = sanitized.request.headers if sanitized else ()
    return any(name == token[0].lower() and token[1] in value for name, value in kept)


def _token(session: PersistentSession, response: Head) -> tuple[str, str] | None:
    """Return the header of requests with the token in a response; None without a token."""
    if session.kind == "header":
        value = response.get(session.name)
        return (session.name, value) if value else None
    cookie = _cookie(session, response)
    return ("cookie", cookie.partition(";")[0]) if cookie else None


def _cookie(session: PersistentSession, response: Head) -> str:
    """Return the cookie that a response sets for a session; empty without one."""
    cookies = (value for name, value in response.headers if name == "set-cookie" and value.startswith(session.name))
    return next(cookies, "")


def _attributes(session: PersistentSession, response: Head) -> set[str]:
    """Return which connections and websites the cookie of a session is for."""
    parts = {part.strip() for part in _cookie(session, response).split(";")[1:]}
    return {part for part in parts if part == "Secure" or part.startswith("SameSite")}


def _of_connection(route: Route, sent: Sent) -> set[str]:
    """Return the attributes of cookies over a connection: those over TLS may be for the websites of a CORS policy."""
    if not sent.server_name:
        return {"SameSite=Lax"}
    return {"Secure", "SameSite=None" if route.cors and route.cors.credentials else "SameSite=Lax"}


def _with_token(sent: Sent, token: tuple[str, str]) -> Sent:
    """Return a request with a token; it has one header with cookies (RFC 6265, 5.4)."""
    cookies = [value for name, value in sent.headers if name.lower() == token[0] == "cookie"]
    others = tuple(header for header in sent.headers if header[0].lower() != token[0])
    return sent._replace(headers=(*others, (token[0], "; ".join([*cookies, token[1]]))))
