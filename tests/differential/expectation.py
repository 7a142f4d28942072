"""What a mesh says about a request, member by member, and whether what was counted agrees with it."""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import NamedTuple

from tests.differential.pool import CLOSED

from headgate.envoy import names
from headgate.model.evaluate import decide
from headgate.model.refs import PortRef
from headgate.model.request import Request

NOT_REQUESTS = 400  # what the HTTP proxy says about a port that carries connections


class Expected(NamedTuple):
    """Who may answer, by shares that add up to 1; `exact` where shares hold for each cycle, not only in the long run.

    `copies` are the fractions of requests that mirrors copy, by the name of their clusters; `copied` the fractions that
    each member gets. There are several where several clusters get copies.
    """

    shares: dict
    exact: bool
    http: bool
    copies: dict
    copied: dict


def expected(mesh, sent, *, name_of, draws):
    """Ask the model. `name_of` names the member that an endpoint is, `draws` says which routes have several clusters."""
    where = place_of(mesh, sent)
    request = Request(authority=sent.authority, method=sent.method, target=sent.target, headers=sent.headers)
    decision = decide(mesh, where, request)
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    http = decision.protocol.is_http
    if sent.via == "proxy" and not http:
        return Expected({NOT_REQUESTS: Fraction(1)}, True, True, {}, {})
    shares = defaultdict(Fraction)
    for portion in decision.shares:
        if portion.status:
            shares[portion.status if http else CLOSED] += portion.share
            continue
        for endpoint in ready[portion.ref]:
            shares[name_of(endpoint)] += portion.share / portion.endpoints
    copies, copied = _copies(mesh, decision, name_of)
    return Expected(dict(shares), _is_exact(decision, draws), http, copies, copied)


def _copies(mesh, decision, name_of):
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    copies, copied = defaultdict(list), defaultdict(list)
    served = sum((portion.share for portion in decision.shares if not portion.status), Fraction())
    for mirror in decision.mirrors:
        targets = [target for target in mirror.targets if ready[target.ref]]
        whole = served * Fraction(mirror.numerator, mirror.denominator)
        parts = [whole * Fraction(item.weight, sum(target.weight for target in targets)) for item in targets]
        copies[names.mirror(mirror.ref, mirror.split)] += parts if _are_apart(mesh, targets, ready) else [sum(parts)]
        for target, part in zip(targets, parts, strict=True):
            for endpoint in ready[target.ref]:
                copied[name_of(endpoint)].append(part / len(ready[target.ref]))
    return {name: parts for name, parts in copies.items() if any(parts)}, dict(copied)


def _are_apart(mesh, targets, ready):
    """Say whether backends can't be in one cluster: they share an endpoint, or are called differently."""
    spoken = {table.ref: table.protocol for table in mesh.tables}
    places = [(item.address, item.port) for target in targets for item in ready[target.ref]]
    return len({target.protocol or spoken[target.ref] for target in targets}) > 1 or len(set(places)) < len(places)


def place_of(mesh, sent):
    """Return what a request is for, as the model has it; None for a port of a Gateway that nobody serves."""
    if sent.via == "gateway":
        return next((item for item in mesh.gateways if item.port == sent.port), None)
    return sent.authority if sent.via == "proxy" else PortRef(sent.service, sent.port)


def _is_exact(decision, draws):
    """Shares of one cluster's localities are exact (ADR 0003); between several clusters a proxy draws."""
    return decision.route is not None and not draws(decision)


def misplaced_copies(wanted: Expected, total: int, issued: dict, extra: Counter, *, sigmas: int):
    """Say what of the copies can't be: `issued` by the proxy for each mirror, `extra` requests that members got (R44, R45)."""
    for cluster, parts in wanted.copies.items():
        middle = total * sum(parts)
        if abs(issued[cluster] - middle) > _room(total, parts, sigmas):
            return f"{cluster} got {issued[cluster]} copies of {total}, which is far from {float(middle):.1f}"
    for who, parts in wanted.copied.items():
        middle, turns = total * sum(parts), 2 * len(wanted.copied)
        if abs(extra[who] - middle) > _room(total, parts, sigmas) + turns:
            return f"{who} got {extra[who]} copies of {total} requests, which is far from {float(middle):.1f}"
    strangers = {who for who, count in extra.items() if count and who not in wanted.copied}
    return f"{strangers} got copies and no mirror names them" if strangers else ""


def _room(total, fractions, sigmas):
    """Return how far the copies of several mirrors may be off; a request is copied by all of them, or by none."""
    deviations = (math.sqrt(total * part * (1 - part)) for part in fractions if part < 1)
    return sum(sigmas * deviation + 1 for deviation in deviations)


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
