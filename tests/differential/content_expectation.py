"""Compare the headers that backends and clients received with the headers that the model expects."""

import re
from collections import defaultdict

from tests.differential.backends import ANSWERED
from tests.differential.routes import RESPONSE_NAMES

from headgate.model.applied_filters import backend_request, client_headers, redirect_location
from headgate.model.routing import PortRef

OF_CLIENTS = ("x-forwarded-for", "x-envoy-external-address")  # a Gateway adds these headers with the client's address
NOTHING = ("content-length", "0")  # proxies add this header for methods that may have a body
USUAL = re.compile(r"(?<=^http:)(//[^/]*):80(?=/)|(?<=^https:)(//[^/]*):443(?=/)")
HOST = re.compile(r"(?<=://)[^/]*")
WATCHED = frozenset(name.lower() for name in RESPONSE_NAMES)


def misplaced_content(wanted, sent, tally, lab, ready):
    """Return how requests or responses differ from the expected ones; empty if they agree.

    `ready` are the endpoints of each Service port.
    """
    decision = wanted.decision
    if decision is None or decision.route is None or not wanted.http or wanted.copies:
        return ""
    for responder, head in tally.heads.items():
        if isinstance(responder, int) and decision.route.redirect:
            if found := _misplaced_location(decision, sent, head):
                return found
        elif isinstance(responder, str) and head:
            portions = [
                item for item in wanted.portions if not item.status and responder in map(lab.member, ready[item.ref])
            ]
            if found := _misplaced_at(responder, head, decision, portions, lab):
                return found
    return ""


def _lowered(url):
    """Return a URL with its host in lower case, because hosts are case-insensitive."""
    return HOST.sub(lambda found: found[0].lower(), url)


def _misplaced_location(decision, sent, head):
    place = decision.entry
    scheme = "https" if sent.server_name else "http"
    port = place.port if isinstance(place, PortRef) else sent.port
    wanted = redirect_location(decision.sanitized.request, decision.route, scheme, port)
    found = USUAL.sub(r"\1\2", head.get("location"))  # without the scheme's default port (RFC 3986, 6.2.3)
    return "" if _lowered(found) == _lowered(wanted) else f"location is {found!r}, not {wanted!r}"


def _misplaced_at(responder, head, decision, portions, lab):
    route = decision.route
    got = next(member.heads for member in lab.members if f"member {member.number}" == responder)
    requests = [backend_request(decision.sanitized.request, route, item.filters) for item in portions]
    if got and not any(_equals(got[-1], request) for request in requests):
        return f"{responder} got {got[-1]}, not {requests}"
    answers = [_watched(client_headers(ANSWERED, route, item.filters)) for item in portions]
    if _watched(head.headers) not in answers:
        return f"the answer of {responder} has {_watched(head.headers)}, not {answers}"
    return ""


def _equals(head, request):
    """Return whether a head equals that of a request; repeated headers count as one value."""
    fields = (("host", request.authority), *request.headers)
    return head.line == f"{request.method} {request.target} HTTP/1.1" and _joined(head.headers) == _joined(fields)


def _watched(headers):
    return {name: value for name, value in _joined(headers).items() if name in WATCHED}


def _joined(headers):
    found = defaultdict(list)
    for name, value in headers:
        if name not in OF_CLIENTS and (name, value) != NOTHING:
            found[name.lower()].append(value)
    return {name: ",".join(values) for name, values in found.items()}
