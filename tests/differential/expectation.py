"""What a mesh says about a request, member by member, and whether what was counted agrees with it."""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import NamedTuple

from tests.differential.pool import CLOSED

from headgate.envoy import names
from headgate.model.evaluate import NO_ENDPOINTS, UNAVAILABLE, Portion, decide, host_fits
from headgate.model.hash_slots import slot_of, slot_range_at
from headgate.model.requests import Request
from headgate.model.routing import GatewayPort, PortRef
from headgate.model.sanitizing import FORBIDDEN, Downstream, sanitize

NOT_REQUESTS = 400  # what the HTTP proxy says about a port that carries connections
CLIENT = "127.0.0.1"


class Expected(NamedTuple):
    """Who may answer, by shares that add up to 1; `exact` where shares hold for each cycle, not only in the long run.

    `copies` are the fractions of requests that mirrors copy, by the name of their clusters; `copied` the fractions that
    each member gets. There are several where several clusters get copies.
    `decision` is the model's; `portions` are those of its shares that the request's own user may get.
    """

    shares: dict
    exact: bool
    http: bool
    copies: dict
    copied: dict
    decision: object = None
    portions: tuple = ()


def expected(mesh, sent, *, name_of, draws):
    """Ask the model. `name_of` names the member that an endpoint is, `draws` says which routes have several clusters."""
    decision = decide(mesh, place_of(mesh, sent), request_of(sent))
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    http = decision.protocol.is_http
    if sent.via == "proxy" and not http:
        return Expected({_of_no_requests(sent): Fraction(1)}, True, True, {}, {})
    if not _has_certificate(decision.entry, sent):
        return Expected({CLOSED: Fraction(1)}, True, True, {}, {})
    portions = _of_user(decision, sent, ready)
    shares = defaultdict(Fraction)
    for portion in portions:
        if portion.status:
            shares[portion.status if http else CLOSED] += portion.share
            continue
        for endpoint in (portion.pod,) if portion.pod else ready[portion.ref]:
            shares[name_of(endpoint)] += portion.share / portion.endpoints
    copies, copied = _copies(mesh, decision.mirrors, portions, name_of)
    exact = _is_exact(decision, draws)
    return Expected(dict(shares), exact, http, copies, copied, decision, portions)


def _copies(mesh, mirrors, portions, name_of):
    ready = {entry.ref: entry.ready for entry in mesh.endpoints}
    copies, copied = defaultdict(list), defaultdict(list)
    served = sum((portion.share for portion in portions if not portion.status), Fraction())
    for mirror in mirrors:
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


def _of_no_requests(sent):
    """Return what the HTTP proxy answers to a request for a port that carries connections."""
    seen = sanitize(request_of(sent), Downstream())
    refused = seen.refused_upgrade and sent.authority.islower()  # else no route is known when upgrades are looked at
    return seen.status or (FORBIDDEN if refused else NOT_REQUESTS)


def _has_certificate(place, sent):
    """Say whether a port without TLS, or with a certificate for the name that the client asks for."""
    names = [name for name, _ in place.tls] if isinstance(place, GatewayPort) else []
    return not names or any(host_fits(name, sent.server_name.lower()) for name in names)


def request_of(sent):
    """Return a request as it goes over the wire: with all of its headers, and for the HTTP proxy with the whole URL."""
    target = f"http://{sent.authority}{sent.target}" if sent.via == "proxy" else sent.target
    headers = (*sent.headers, ("content-length", "0"))
    return Request(
        authority=sent.authority,
        method=sent.method,
        target=target,
        headers=headers,
        server_name=sent.server_name or None,
    )


def _of_user(decision, sent, ready):
    """Return the shares of the request's own user, who has one side where the request says who it is."""
    sticky = decision.route.split.sticky if decision.route else None
    slot = slot_of(CLIENT) if sticky and sticky.kind == "source" else decision.slot
    if sticky is None or slot is None:
        return decision.shares
    side = slot_range_at(sticky, slot)
    if side.ref is None:
        return (Portion(share=Fraction(1), status=side.status),)
    count = len(ready.get(side.ref, ()))
    if not count:
        return (Portion(share=Fraction(1), ref=side.ref, status=UNAVAILABLE, reason=NO_ENDPOINTS),)
    return (Portion(share=Fraction(1), ref=side.ref, endpoints=count),)


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
