"""What a mesh says about a request, member by member, and whether what was counted agrees with it."""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import NamedTuple

from tests.differential.pool import CLOSED

from headgate.model.evaluate import decide
from headgate.model.refs import PortRef
from headgate.model.request import Request

NOT_REQUESTS = 400  # what the HTTP proxy says about a port that carries connections


class Expected(NamedTuple):
    """Who may answer, by shares that add up to 1; `exact` where shares hold for each cycle, not only in the long run.

    `copies` are the fractions of requests that Service ports with endpoints get copies of, `copied` the members there.
    """

    shares: dict
    exact: bool
    http: bool
    copies: dict
    copied: frozenset


def expected(mesh, sent, *, name_of, draws):
    """Ask the model. `name_of` names the member that an endpoint is, `draws` says which routes have several clusters."""
    where = place_of(mesh, sent)
    request = Request(authority=sent.authority, method=sent.method, target=sent.target, headers=sent.headers)
    decision = decide(mesh, where, request)
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    http = decision.protocol.is_http
    if sent.via == "proxy" and not http:
        return Expected({NOT_REQUESTS: Fraction(1)}, True, True, {}, frozenset())
    shares = defaultdict(Fraction)
    for portion in decision.shares:
        if portion.status:
            shares[portion.status if http else CLOSED] += portion.share
            continue
        for endpoint in ready[portion.ref]:
            shares[name_of(endpoint)] += portion.share / portion.endpoints
    copies = defaultdict(Fraction)
    served = sum((portion.share for portion in decision.shares if not portion.status), Fraction())
    for mirror in decision.mirrors:
        if ready[mirror.ref]:
            copies[mirror.ref] += served * Fraction(mirror.numerator, mirror.denominator)
    copied = frozenset(name_of(endpoint) for ref in copies for endpoint in ready[ref])
    return Expected(dict(shares), _is_exact(decision, draws), http, dict(copies), copied)


def place_of(mesh, sent):
    """Return what a request is for, as the model has it; None for a port of a Gateway that nobody serves."""
    if sent.via == "gateway":
        return next((item for item in mesh.gateways if item.port == sent.port), None)
    return sent.authority if sent.via == "proxy" else PortRef(sent.service, sent.port)


def _is_exact(decision, draws):
    """Shares of one cluster's localities are exact (ADR 0003); between several clusters a proxy draws."""
    return decision.route is not None and not draws(decision)


def misplaced_copies(wanted: Expected, total: int, issued: dict, extra: Counter, *, sigmas: int):
    """Say what of the copies can't be: `issued` by the proxy for each port, `extra` requests that members got (R44, R45)."""
    for ref, fraction in wanted.copies.items():
        middle = total * fraction
        room = sigmas * math.sqrt(middle * (1 - fraction)) + 1 if fraction < 1 else 0
        if abs(issued[ref] - middle) > room:
            return f"{ref} got {issued[ref]} copies of {total}, which is far from {float(middle):.1f}"
    strangers = {who for who, count in extra.items() if count and who not in wanted.copied}
    return f"{strangers} got copies and no mirror names them" if strangers else ""


def disagreement(wanted: Expected, counted: Counter, *, sigmas: int):
    """Say what of a count can't be, or hardly; empty when all is well. Nobody without a share may ever answer."""
    total = counted.total()
    for who in counted.keys() - wanted.shares.keys():
        return f"{who} answered {counted[who]} of {total} and has no share"
    for who, share in wanted.shares.items():
        middle = total * share
        room = len(wanted.shares) if wanted.exact else sigmas * math.sqrt(middle * (1 - share)) + 1
        if abs(counted[who] - middle) > room:
            return f"{who} answered {counted[who]} of {total}, which is far from {float(middle):.1f}"
    return ""
