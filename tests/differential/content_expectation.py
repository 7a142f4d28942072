"""Compare the headers that backends and clients received with the headers that the model expects."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs
from tests.differential.backends import ANSWERED, FIRST_FINAL, PERMIT, Head, Responder, Tally
from tests.differential.filters import RESPONSE_NAMES
from tests.differential.lab import MemberLab
from tests.differential.routing_expectation import ExpectedShares, Ready
from tests.differential.worlds import Sent

from headgate.model.applied_filters import backend_request, redirect_location
from headgate.model.cors import origin_pattern
from headgate.model.evaluate import Decision, Portion
from headgate.model.requests import Filters, Redirect, Request
from headgate.model.routing import PortRef, Route

OF_CLIENTS = ("x-forwarded-for",)  # a Gateway adds the client's address
NOTHING = {("content-length", "0"), ("transfer-encoding", "chunked")}  # proxies choose how they send an empty body
USUAL = re.compile(r"(?<=^http:)(//[^/]*):80(?=/)|(?<=^https:)(//[^/]*):443(?=/)")
HOST = re.compile(r"(?<=://)[^/]*")
FINAL_DOT = re.compile(r"\.(?=(?::\d+)?$)")
WATCHED = frozenset(name.lower() for name in RESPONSE_NAMES)


def misplaced_content(wanted: ExpectedShares, sent: Sent, tally: Tally, lab: MemberLab, ready: Ready) -> str:
    """Return how requests or responses differ from the expected ones; empty if they agree."""
    decision = wanted.decision
    if decision is None or decision.route is None or not wanted.http or wanted.copies:
        return ""
    for responder, head in tally.heads.items():
        redirects = [share.redirect for share in wanted.portions if share.redirect and share.status == responder]
        redirects = [decision.route.redirect] if decision.route.redirect else redirects
        if isinstance(responder, int) and head and redirects:
            if found := _misplaced_location(decision, redirects, sent, head):
                return found
        elif isinstance(responder, str) and head:
            portions = [
                portion
                for portion in wanted.portions
                if not portion.status and portion.ref and responder in map(lab.member, ready[portion.ref])
            ]
            if found := _misplaced_at(responder, head, decision, portions, lab):
                return found
            received = next(member.heads for member in lab.members if member.name == responder)
            if received and _joined(received[-1].trailers) != _joined(sent.trailers):
                return f"{responder} got the trailers {received[-1].trailers}, not {sent.trailers}"
            if received and sent.method != "HEAD" and _joined(head.trailers) != _joined(sent.trailers):
                return f"the client got the trailers {head.trailers}, not {sent.trailers}"
    return ""


def misplaced_origin(wanted: ExpectedShares, tally: Tally) -> str:
    """Return how the origin that responses agree to differs from the decision of the rule's policy; empty if they agree."""
    if wanted.decision is None or wanted.decision.route is None or not wanted.http:
        return ""
    request, route = _routed(wanted.decision)
    origin = dict(request.headers).get("origin", "")
    allowed = route.cors and any(re.fullmatch(origin_pattern(text), origin) for text in route.cors.origins)
    agreed = {head.get("access-control-allow-origin") for head in tally.heads.values() if head}
    return "" if agreed <= {origin if origin and allowed else ""} else f"responses agree to the origins {agreed}"


def _lowered(url: str) -> str:
    """Return a URL with its host in lower case and without a final dot, because DNS ignores both."""
    return HOST.sub(lambda host: FINAL_DOT.sub("", host[0].lower()), url)


def _misplaced_location(decision: Decision, redirects: Iterable[Redirect], sent: Sent, head: Head) -> str:
    place, (request, route) = decision.entry, _routed(decision)
    scheme = "https" if sent.server_name else "http"
    port = place.port if isinstance(place, PortRef) else sent.port
    locations = [redirect_location(request, route, redirect, scheme, port) for redirect in redirects]
    found = USUAL.sub(r"\1\2", head.get("location"))  # without the scheme's default port (RFC 3986, 6.2.3)
    return "" if _lowered(found) in map(_lowered, locations) else f"location is {found!r}, not {locations!r}"


def _misplaced_at(
    responder: Responder, head: Head, decision: Decision, portions: Sequence[Portion], lab: MemberLab
) -> str:
    request, route = _routed(decision)
    got = next(member.heads for member in lab.members if member.name == responder)
    permit = ((PERMIT, "200"),) if route.external_auth else ()
    requests = [backend_request(request, route, portion.filters) for portion in portions]
    requests = [structs.replace(each, headers=(*each.headers, *permit)) for each in requests]
    if got and not any(_equals(got[-1], expected) for expected in requests):
        return f"{responder} got {got[-1]}, not {requests}"
    if got and got[-1].secure not in {portion.tls is not None for portion in portions}:
        return f"{responder} got the request with{'' if got[-1].secure else 'out'} TLS"
    is_refused = int(head.line.split()[1]) == FIRST_FINAL and "upgrade" in dict(request.headers)
    answered = _refused_upgrade_headers if is_refused else _client_headers
    answers = [_watched(answered(route, portion.filters)) for portion in portions]
    if _watched(head.headers) not in answers:
        return f"the answer of {responder} has {_watched(head.headers)}, not {answers}"
    return ""


def _client_headers(route: Route, share: Filters) -> Iterable[tuple[str, str]]:
    """Return the headers of a backend's response as the client gets them."""
    return _edited(ANSWERED, route, share)


def _refused_upgrade_headers(route: Route, share: Filters) -> Iterable[tuple[str, str]]:
    """Return the same for a server that ignores the offer of a WebSocket (docs/tasks/protocols.md, limits)."""
    return (*_edited((), route, share), *ANSWERED)


def _edited(headers: tuple[tuple[str, str], ...], route: Route, share: Filters) -> tuple[tuple[str, str], ...]:
    for edit in filter(None, (route.filters.response, share.response)):
        replaced = {name.lower() for name in (*dict(edit.set), *edit.remove)}
        headers = (*(header for header in headers if header[0].lower() not in replaced), *edit.set, *edit.add)
    return headers


def _routed(decision: Decision) -> tuple[Request, Route]:
    """Return the request as its route sees it, and the route."""
    assert decision.sanitized
    assert decision.route
    return decision.sanitized.request, decision.route


def _equals(head: Head, request: Request) -> bool:
    """Return whether a head equals that of a request; repeated headers count as one value."""
    fields = (("host", request.authority), *request.headers)
    return head.line == f"{request.method} {request.target} HTTP/1.1" and _joined(head.headers) == _joined(fields)


def _watched(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    return {name: value for name, value in _joined(headers).items() if name in WATCHED}


def _joined(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    values_of: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in headers:
        if name not in OF_CLIENTS and (name, value) not in NOTHING:
            values_of[name.lower()].append(value)
    return {name: ",".join(values) for name, values in values_of.items()}
