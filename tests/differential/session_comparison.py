"""Compare sessions of a real proxy with those of the model: requests with a token stay at the endpoint that the token names."""

from tests.differential.backends import Head
from tests.differential.gateway_lab import GatewayLab
from tests.differential.requests import address_of, connected, head
from tests.differential.routing_expectation import ExpectedShares, expected
from tests.differential.worlds import Sent

from headgate.model.routing import Mesh
from headgate.model.sessions import PersistentSession

AGAIN = 6
"""How often a request with a token is sent."""


def strayed(lab: GatewayLab, mesh: Mesh, sent: Sent, wanted: ExpectedShares, heads: dict[str, Head]) -> str:
    """Send requests again, with the tokens in the responses `heads` of members; return which of them did not stay.

    Copies would be counted as requests, so rules with mirrors are left out.
    """
    route = wanted.decision.route if wanted.decision else None
    session = route.session if route else None
    if session is None or not wanted.http or wanted.copies:
        return ""
    for member, response in heads.items():
        token = _token(session, response)
        if token is None and session.kind == "cookie":
            return f"the response of {member} has no token of {session}"
        again = _with_token(sent, token) if token else sent
        expected_again = expected(mesh, again, name_of=lab.member, draws=lab.draws)
        stays = expected_again.decision and expected_again.decision.route == route
        where = address_of(mesh, again, lab)
        if not token or not stays or where is None:  # the token may be a header that other rules match
            continue
        tally = lab.send(where, head(again), AGAIN, **connected(again, wanted))
        if tally.counted.keys() != {member}:
            return f"of the requests with {token}, not all stay at {member}: {dict(tally.counted)}"
    return ""


def _token(session: PersistentSession, response: Head) -> tuple[str, str] | None:
    """Return the header of requests with the token in a response; None without a token."""
    if session.kind == "header":
        value = response.get(session.name)
        return (session.name, value) if value else None
    cookies = [value for name, value in response.headers if name == "set-cookie" and value.startswith(session.name)]
    return ("cookie", cookies[0].partition(";")[0]) if cookies else None


def _with_token(sent: Sent, token: tuple[str, str]) -> Sent:
    """Return a request with a token; it has one header with cookies (RFC 6265, 5.4)."""
    cookies = [value for name, value in sent.headers if name.lower() == token[0] == "cookie"]
    others = tuple(header for header in sent.headers if header[0].lower() != token[0])
    return sent._replace(headers=(*others, (token[0], "; ".join([*cookies, token[1]]))))
