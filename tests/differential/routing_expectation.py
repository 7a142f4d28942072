"""The model's expected distribution of a request among backends, and its comparison with the counts."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tests.differential.backends import CLOSED, Responder, refuses
from tests.differential.worlds import Sent

from headgate.envoy import names
from headgate.model.evaluate import NO_ENDPOINTS, PREFLIGHT_REQUEST, UNAVAILABLE, Decision, Portion, decide
from headgate.model.hash_slots import slot_of, slot_range_at
from headgate.model.host_names import host_fits, server_name_entry
from headgate.model.requests import Request
from headgate.model.routing import Endpoint, GatewayPort, Mesh, Mirror, PortRef, Target
from headgate.model.sanitizing import FORBIDDEN, NOT_FOUND, Downstream, sanitize

NOT_REQUESTS = 400  # the HTTP proxy's status for a request to a TCP port
CLIENT = "127.0.0.1"
Ready: TypeAlias = Mapping[PortRef, tuple[Endpoint, ...]]
"""The ready endpoints of each Service port."""


class ExpectedShares(NamedTuple):
    """The share of each responder; shares add up to 1. With `exact`, each round robin cycle has exactly these shares.

    `copies` lists the fractions of requests that are mirrored, by mirror cluster, and `copied` the fractions that
    are mirrored to each member, one for each mirror and backend. `decision` is the model's decision;
    `portions` has its shares for the request's user.
    """

    shares: Mapping[Responder, Fraction]
    exact: bool
    http: bool
    copies: Mapping[str, Sequence[Fraction]]
    copied: Mapping[Responder, Sequence[Fraction]]
    decision: Decision | None = None
    portions: tuple[Portion, ...] = ()


def expected(
    mesh: Mesh, sent: Sent, *, name_of: Callable[[Endpoint], str], draws: Callable[[Decision], bool]
) -> ExpectedShares:
    """Return the distribution that the model expects.

    `name_of` returns the member of an endpoint. `draws` returns whether a decision's route has weighted clusters.
    """
    place = place_of(mesh, sent)
    assert place is not None
    decision = decide(mesh, place, request_of(sent))
    ready = ready_in(mesh)
    http = decision.protocol.is_http
    if sent.via == "tunnel" and decision.entry is None:
        return ExpectedShares({NOT_FOUND: Fraction(1)}, True, True, {}, {})
    if sent.via == "proxy" and not http:
        return ExpectedShares({_tcp_port_status(sent): Fraction(1)}, True, True, {}, {})
    has_names = any(table.server_names for table in mesh.tables if table.ref == decision.entry)
    if not _completes_handshake(decision.entry, sent) or (has_names and not sent.server_name):
        return ExpectedShares({CLOSED: Fraction(1)}, True, True, {}, {})
    if _is_denied(decision, ready):
        return ExpectedShares({FORBIDDEN: Fraction(1)}, True, True, {}, {})
    portions = _user_shares(decision, sent, ready)
    shares: defaultdict[Responder, Fraction] = defaultdict(Fraction)
    for portion in portions:
        if portion.status:
            answers = http or (sent.via == "tunnel" and not has_names)  # a tunnel opens before the server name arrives
            shares[portion.status if answers else CLOSED] += portion.share
            continue
        for endpoint in (portion.pod,) if portion.pod else ready[_backend(portion)]:
            shares[name_of(endpoint)] += portion.share / portion.endpoints
    copies, copied = _copies(mesh, decision.mirrors, portions, name_of)
    # Localities of a cluster are exact (ADR 0003). The routes of CONNECT have weighted clusters.
    exact = decision.route is not None and (http or sent.via != "tunnel") and not draws(decision)
    exact = exact and (decision.route is None or decision.route.split.order == "rotation")
    return ExpectedShares(dict(shares), exact, http, copies, copied, decision, portions)


def _is_denied(decision: Decision, ready: Ready) -> bool:
    """Return whether the authorization server of a request's rule denies it, or can't be reached."""
    server = decision.route.external_auth if decision.route else None
    if server is None or decision.sanitized is None or decision.shares[0].reason == PREFLIGHT_REQUEST:
        return False
    return not ready[server.ref] or refuses(decision.sanitized.request.headers)


def ready_in(mesh: Mesh) -> Ready:
    """Return the ready endpoints of a mesh."""
    return {entry.ref: entry.ready for entry in mesh.endpoints}


def _backend(portion: Portion) -> PortRef:
    assert portion.ref is not None
    return portion.ref


def _copies(
    mesh: Mesh, mirrors: Iterable[Mirror], portions: Iterable[Portion], name_of: Callable[[Endpoint], str]
) -> tuple[Mapping[str, Sequence[Fraction]], Mapping[Responder, Sequence[Fraction]]]:
    ready = ready_in(mesh)
    copies: defaultdict[str, list[Fraction]] = defaultdict(list)
    copied: defaultdict[Responder, list[Fraction]] = defaultdict(list)
    served = sum((portion.share for portion in portions if not portion.status), Fraction())
    for mirror in mirrors:
        targets = [target for target in mirror.targets if ready[target.ref]]
        whole = served * Fraction(mirror.numerator, mirror.denominator)
        parts = [whole * Fraction(item.weight, sum(target.weight for target in targets)) for item in targets]
        clusters = [(target.protocol, part) for target, part in zip(targets, parts, strict=True)]
        if not _are_apart(mesh, targets, ready):
            clusters = [(mirror.targets[0].protocol, sum(parts, Fraction()))]
        for protocol, part in clusters:
            copies[names.mirror(mirror.ref, mirror.split, by=mirror.by, protocol=protocol)].append(part)
        for target, part in zip(targets, parts, strict=True):
            for endpoint in ready[target.ref]:
                copied[name_of(endpoint)].append(part / len(ready[target.ref]))
    return {name: parts for name, parts in copies.items() if any(parts)}, dict(copied)


def _are_apart(mesh: Mesh, targets: Sequence[Target], ready: Ready) -> bool:
    """Return whether backends need separate clusters: they share an endpoint, or their protocols differ."""
    protocols = {table.ref: table.protocol for table in mesh.tables}
    places = [(endpoint.address, endpoint.port) for target in targets for endpoint in ready[target.ref]]
    return len({target.protocol or protocols[target.ref] for target in targets}) > 1 or len(set(places)) < len(places)


def _tcp_port_status(sent: Sent) -> int:
    """Return the HTTP proxy's status for a request to a TCP port."""
    return sanitize(request_of(sent), Downstream()).status or NOT_REQUESTS


def _completes_handshake(place: object, sent: Sent) -> bool:
    """Return whether a port ends no TLS of the client, or has a certificate for its SNI and accepts the client's."""
    if not isinstance(place, GatewayPort):
        return True
    names = [name for name, _ in place.tls]
    entry = server_name_entry(place, sent.server_name.lower())
    if not names or (entry and not entry.terminated):
        return True
    required = place.client_certificates
    is_known = required is None or required.optional or sent.client == "client"
    return is_known and any(host_fits(name, sent.server_name.lower()) for name in names)


def request_of(sent: Sent) -> Request:
    """Return a request as the client sends it: with all headers, and with a full URL for the HTTP proxy."""
    target = f"http://{sent.authority}{sent.target}" if sent.via == "proxy" else sent.target
    length = ("transfer-encoding", "chunked") if sent.chunked else ("content-length", "0")
    headers = (*sent.headers, length)
    return Request(
        authority=sent.authority,
        method=sent.method,
        target=target,
        headers=headers,
        server_name=sent.server_name or None,
        version=sent.version,
    )


def _user_shares(decision: Decision, sent: Sent, ready: Ready) -> tuple[Portion, ...]:
    """Return the shares for the request's user; a user that a sticky split recognizes has one backend."""
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


def place_of(mesh: Mesh, sent: Sent) -> GatewayPort | PortRef | str | None:
    """Return the destination of a request in the model; None for a Gateway port that does not exist."""
    if sent.via == "gateway":
        return next((port for port in mesh.gateways if port.port == sent.port), None)
    names = {"proxy": sent.authority, "tunnel": sent.tunnel}
    return names.get(sent.via) or PortRef(sent.service, sent.port)


def misplaced_copies(
    wanted: ExpectedShares,
    total: int,
    issued: Mapping[str, int | Fraction],
    extra: Counter[Responder],
    *,
    sigmas: int,
) -> str:
    """Return how the numbers of mirrored requests differ from the expectation; empty if they agree (R44, R45).

    `issued` has the number that the proxy sent to each mirror, `extra` the number that each member received.
    """
    for cluster, parts in wanted.copies.items():
        middle = total * sum(parts, Fraction())
        if abs(issued[cluster] - middle) > _tolerance(total, parts, sigmas):
            return f"{cluster} got {issued[cluster]} copies of {total}, which is far from {float(middle):.1f}"
    for responder, parts in wanted.copied.items():
        middle, turns = total * sum(parts, Fraction()), 2 * len(wanted.copied)
        if abs(extra[responder] - middle) > _tolerance(total, parts, sigmas) + turns:
            return f"{responder} received {extra[responder]} copies of {total} requests, far from {float(middle):.1f}"
    strangers = {responder for responder, count in extra.items() if count and responder not in wanted.copied}
    return f"{strangers} received copies, but are backends of no mirror" if strangers else ""


def _tolerance(total: int, fractions: Iterable[Fraction], sigmas: int) -> float:
    """Return the allowed deviation of a number of mirrored requests.

    The deviations of mirrors add up, because a request is sent to all of its mirrors or to none.
    """
    deviations = (math.sqrt(total * part * (1 - part)) for part in fractions if part < 1)
    return sum(sigmas * deviation + 1 for deviation in deviations)


def disagreement(wanted: ExpectedShares, counted: Counter[Responder], *, sigmas: int) -> str:
    """Return how the counts differ from the expectation; empty if they agree.

    A responder without a share must never answer.
    """
    total = counted.total()
    for responder in counted.keys() - wanted.shares.keys():
        return f"{responder} answered {counted[responder]} of {total} and has no share"
    for responder, share in wanted.shares.items():
        middle = total * share
        room = len(wanted.shares) if wanted.exact else sigmas * math.sqrt(middle * (1 - share)) + 1
        if abs(counted[responder] - middle) > room:
            return f"{responder} answered {counted[responder]} of {total}, which is far from {float(middle):.1f}"
    return ""
