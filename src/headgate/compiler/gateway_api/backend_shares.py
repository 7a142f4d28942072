"""Compile the backends of a rule to shares of its traffic, and its mirrors (D3, D11, D13, D14; R44 to R60)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from msgspec import structs

from headgate.compiler.gateway_api.destinations import Destinations, PortDestination
from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.model.evaluate import fractions
from headgate.model.requests import NO_FILTERS, Filters, Redirect
from headgate.model.routing import Broken, ExternalAuth, Mirror, PortRef, Protocol, Redirected, Split, Target
from headgate.resources.gateway_api.routes import AuthHeaders, HTTPExternalAuth, RequestMirror
from headgate.resources.meta import Key
from headgate.resources.weights import LARGEST_SUM, whole_weights

WHOLE = 100  # The default numerator and the default denominator of a fraction (R48).
FINEST = 1_000_000  # Envoy's largest denominator of a fraction.

Share: TypeAlias = Target | Broken | Redirected


class Failure(NamedTuple):
    """How failing traffic of a kind of route is answered: HTTP status, and texts for a user's mistake and an outage."""

    status: int
    mistake: str
    outage: str


_CLOSED = Failure(503, "closed at once", "closed at once")
_HTTP = Failure(500, "answered with 500", "answered with 503")
_FAILURES = {
    "GRPCRoute": Failure(
        503, "answered with UNAVAILABLE", "answered with UNAVAILABLE"
    ),  # gRPC clients see 503 as UNAVAILABLE
    "TCPRoute": _CLOSED,
    "TLSRoute": _CLOSED,
    "UDPRoute": Failure(503, "dropped", "dropped"),
}


def failure(about: Key) -> Failure:
    """Return how proxies answer failing traffic of a route."""
    return _FAILURES.get(about.kind, _HTTP)


class RuleBackend(NamedTuple):
    """A backendRef of a rule: field path, weight, and its Service port or a finding.

    `filters` apply only to the requests of this backend. With `redirect`, they get a redirect instead.
    """

    field: str
    weight: int
    port_ref: PortRef | Finding
    filters: Filters = NO_FILTERS
    redirect: Redirect | None = None

    @property
    def is_called(self) -> bool:
        """Return whether the backend gets requests, if its reference is valid."""
        return bool(self.weight) and self.redirect is None


ChosenDestinations: TypeAlias = Mapping[PortRef, PortDestination]
"""For each Service port, the destination of the requests that fit one match."""


def findings(destinations: Destinations, about: Key, field: str, backends: Sequence[RuleBackend]) -> list[Finding]:
    """Return the findings about the backends of a rule."""
    backend_findings = [finding for backend in backends for finding in _findings(destinations, about, backend)]
    if not any(backend.weight for backend in backends):
        what = "no backend has a weight above 0" if backends else "the rule has no backend and no redirect"
        message = f"{what}, so all its traffic is {failure(about).mistake}; add a Service with a weight above 0"
        backend_findings.append(Finding(about, Reason.ALL_WEIGHTS_ZERO, field, message))
    return backend_findings


def split(
    destinations: Destinations,
    about: Key,
    backends: Sequence[RuleBackend],
    chosen: ChosenDestinations,
    *,
    sessions: bool = False,
) -> Split:
    """Return the split of a rule's traffic, for requests whose destination at each Service port is `chosen`.

    An invalid reference keeps its share, which gets 500; a backend without ready endpoints gets 503 (D11). The
    root of a split is replaced by the split's backends (D13). Without a weight above 0, all traffic gets 500. For gRPC
    calls the error is UNAVAILABLE, TCP connections are closed, and datagrams are dropped. With `sessions`, backends with the
    weight 0 keep those that they have, and take precedence over sticky users. So do Services with sessions of their own at
    the weight 0.
    """
    weights: dict[Share, Fraction] = defaultdict(Fraction)
    roots: dict[Share, set[str]] = defaultdict(set)
    kept: set[Share] = set()
    for backend in backends:
        choice = (
            backend.port_ref
            if isinstance(backend.port_ref, Finding)
            else chosen.get(backend.port_ref, PortDestination(ref=backend.port_ref))
        )
        for share, part in _parts(destinations, about, choice, backend):
            weights[share] += part * backend.weight
            keeps = sessions or (
                not isinstance(choice, Finding) and destinations.keeps_sessions(about, choice.ref.service)
            )
            kept |= {share} if keeps else set()
            if backend.weight or keeps:
                roots[share].add(_root(choice))
    shares = {share: weight for share, weight in weights.items() if weight}
    if not shares:
        return failing_split(about, Reason.ALL_WEIGHTS_ZERO)
    if not sessions and (sticky := _sticky_split(backends, chosen)):
        return sticky
    weighed = _weighed(shares, roots)
    drained = [target for target in weights if isinstance(target, Target) and target in kept and target not in shares]
    if drained:
        targets = (_rooted(structs.replace(target, weight=0), roots[target], _unclear(roots)) for target in drained)
        weighed = structs.replace(weighed, targets=(*weighed.targets, *targets))
    return structs.replace(weighed, order="random") if _is_drawn(backends, chosen) else weighed


def _is_drawn(backends: Sequence[RuleBackend], chosen: ChosenDestinations) -> bool:
    """Return whether the split of a backend that is called has a random order; then that of the whole rule has it."""
    refs = (backend.port_ref for backend in backends if backend.is_called)
    splits = (chosen[ref].split for ref in refs if not isinstance(ref, Finding) and ref in chosen)
    return any(split.order == "random" for split in splits if split)


def _root(choice: PortDestination | Finding) -> str:
    """Return the root (`namespace/name`) whose split is applied; empty for a Service that serves its own requests."""
    return choice.ref.service if isinstance(choice, PortDestination) and choice.split else ""


def _sticky_split(backends: Sequence[RuleBackend], chosen: ChosenDestinations) -> Split | None:
    """Return the split of the only backend unchanged if it is sticky, so that users stay with their backend."""
    only, *more = (backend for backend in backends if backend.weight)
    if more or isinstance(only.port_ref, Finding) or only.filters != NO_FILTERS or only.redirect:
        return None
    decided = chosen[only.port_ref].split
    if not decided or not decided.sticky:
        return None
    targets = tuple(structs.replace(target, root=only.port_ref.service) for target in decided.targets)
    return structs.replace(decided, targets=targets)


def failing_split(about: Key, reason: Reason) -> Split:
    """Return a split that answers all traffic with an error."""
    return Split(targets=(), broken=(Broken(weight=1, reason=reason.value, status=failure(about).status),))


def _parts(
    destinations: Destinations, about: Key, choice: PortDestination | Finding, backend: RuleBackend
) -> Iterator[tuple[Share, Fraction]]:
    """Yield the shares of one backend as fractions of 1: its Service, the backends of its split, a redirect or an error."""
    whole, filters = Fraction(1), backend.filters
    if isinstance(choice, Finding):
        yield Broken(weight=1, reason=choice.reason.value, status=failure(about).status), whole
    elif backend.redirect:
        yield Redirected(weight=1, redirect=backend.redirect, filters=filters), whole
    elif choice.external and choice.external.fault:
        yield Broken(weight=1, reason=choice.external.fault), whole
    elif destinations.is_empty(choice):
        yield Broken(weight=1, reason=Reason.NO_READY_ENDPOINTS.value), whole
    elif choice.split is not None:
        for share, part in fractions(choice.split):
            own = {"filters": filters} if isinstance(share, Target) else {}
            yield structs.replace(share, weight=1, **own), part
    else:
        yield structs.replace(choice.target(about), filters=filters), whole


def _weighed(shares: Mapping[Share, Fraction], roots: Mapping[Share, Collection[str]]) -> Split:
    """Return the split of some shares. `roots` has those through which each share is reached; empty for none."""
    unclear = _unclear(roots)
    weights = fitting(whole_weights(list(shares.values())))
    weighed = [structs.replace(share, weight=weight) for share, weight in zip(shares, weights, strict=True)]
    return Split(
        targets=tuple(
            _rooted(share, roots[key], unclear)
            for key, share in zip(shares, weighed, strict=True)
            if isinstance(share, Target)
        ),
        broken=tuple(share for share in weighed if isinstance(share, Broken)),
        redirected=tuple(share for share in weighed if isinstance(share, Redirected)),
    )


def _unclear(roots: Mapping[Share, Collection[str]]) -> set[str]:
    """Return the roots that no share names: if a share is reached in several ways, it is unknown how a request came to it."""
    return {root for several in roots.values() if len(several) > 1 for root in several}


def _rooted(target: Target, roots: Collection[str], unclear: set[str]) -> Target:
    """Return a target with its root; if that is unclear, with all Services whose policies can apply to it."""
    if unclear.isdisjoint(roots):
        return structs.replace(target, root=next(iter(roots)))
    return structs.replace(target, policy_roots=tuple(sorted(root or target.ref.service for root in roots)))


def fitting(weights: Sequence[int]) -> tuple[int, ...]:
    """Scale weights down to Envoy's limit for their sum, which nested splits can exceed; each stays at least 1."""
    total = sum(weights)
    room = LARGEST_SUM - len(weights)
    return tuple(weights) if total <= LARGEST_SUM else tuple(max(1, weight * room // total) for weight in weights)


def _findings(destinations: Destinations, about: Key, backend: RuleBackend) -> Iterator[Finding]:
    if isinstance(backend.port_ref, Finding):
        message = f"its share is {failure(about).mistake}: {backend.port_ref.message}"
        yield structs.replace(backend.port_ref, message=message)
    elif backend.is_called:
        effect = f"its share is {failure(about).outage}"
        yield from _without_endpoints(destinations, about, backend.port_ref, f"{backend.field}.name", effect)


def _without_endpoints(
    destinations: Destinations, about: Key, port_ref: PortRef, field: str, effect: str
) -> Iterator[Finding]:
    related = (service_key(port_ref.service),)
    for what in dict.fromkeys(_without_endpoint_texts(destinations, port_ref)):
        yield Finding(about, Reason.NO_READY_ENDPOINTS, field, f"{effect}: {what}", related)


def _without_endpoint_texts(destinations: Destinations, port_ref: PortRef) -> Iterator[str]:
    """Yield a text for each destination of a Service port (the Service or a split) that has no ready endpoint."""
    for choice in destinations.port_destinations(port_ref):
        if destinations.is_empty(choice):
            port = f"port {port_ref.port}"
            if choice.external:
                yield f"proxies do not resolve the hostname of {choice.external.key}"
            elif choice.by is None:
                yield f"Service {port_ref.service} has no ready endpoint on {port}"
            else:
                yield f"no backend of {choice.by} has a ready endpoint and a weight for {port_ref.service} on {port}"


def proportion(mirror: RequestMirror) -> tuple[int, int]:
    """Return the numerator and the denominator of the fraction of requests to mirror.

    `fraction` takes precedence over `percent` (R49); its numerator and denominator are 100 by default (R48). Without
    both fields, every request is mirrored (R50, R51).
    """
    if mirror.fraction is not None:
        numerator, denominator = mirror.fraction.numerator, mirror.fraction.denominator
        return (WHOLE if numerator is None else numerator), (WHOLE if denominator is None else denominator)
    return (WHOLE if mirror.percent is None else mirror.percent), WHOLE


def mirrors(
    destinations: Destinations, about: Key, written: Iterable[tuple[str, RequestMirror]]
) -> tuple[list[Mirror], list[Finding]]:
    """Return the mirrors of a rule, still without targets, and findings; `written` has mirrors with their field paths.

    A mirror to a port that is not HTTP, or to a missing Service, is left out (D14).
    """
    usable: list[Mirror] = []
    findings: list[Finding] = []
    for field, mirror in written:
        numerator, denominator = proportion(mirror)
        findings += _notes(about, field, mirror)
        port_ref = destinations.find_http(about, mirror.backend_ref, f"{field}.backendRef")
        if isinstance(port_ref, Finding):
            findings.append(structs.replace(port_ref, message=f"this mirror gets no requests: {port_ref.message}"))
        elif numerator:
            name = f"{field}.backendRef.name"
            findings += _without_endpoints(destinations, about, port_ref, name, "its copies are dropped")
            usable.append(Mirror(ref=port_ref, targets=(), numerator=numerator, denominator=denominator))
    return usable, findings


def expanded_mirror(about: Key, mirror: Mirror, chosen: ChosenDestinations) -> Mirror | None:
    """Return a mirror of the route `about` with targets, for requests whose destinations are `chosen`; None if it gets no requests.

    The root of a split is replaced by the split's backends (D13), as in a backendRef. Mirrored requests are
    distributed by weight, even if the split is sticky; those of a failing share are dropped.
    """
    choice = chosen[mirror.ref]
    if choice.split is None:
        is_usable = not (choice.external and choice.external.fault)
        return structs.replace(mirror, targets=(choice.target(about),)) if is_usable else None
    if not choice.split.targets:
        return None
    served = sum(share for target, share in fractions(choice.split) if isinstance(target, Target))
    part = Fraction(mirror.numerator, mirror.denominator) * served
    return structs.replace(
        mirror,
        targets=choice.split.targets,
        numerator=part.numerator,
        denominator=part.denominator,
        split=choice.by if choice.split_match else None,
    )


def external_auth(
    destinations: Destinations, about: Key, field: str, written: HTTPExternalAuth
) -> tuple[ExternalAuth | None, list[Finding]]:
    """Return the authorization server of a rule, and findings; None if the reference is invalid.

    Then no request may pass, and none if the server's TLS has a fault either. Splits of the server's Service are not applied.
    """
    ref = destinations.find_http(about, written.backend_ref, f"{field}.backendRef")
    if isinstance(ref, Finding):
        effect = f"all requests of the rule are {failure(about).mistake}, because nothing can allow them"
        return None, [structs.replace(ref, message=f"{effect}: {ref.message}")]
    effect = "no request of the rule is allowed, and all are answered with 403"
    notes = list(_without_endpoints(destinations, about, ref, f"{field}.backendRef.name", effect))
    server = destinations.without_split(ref).external
    if server and server.fault:
        effect = f"all requests of the rule are {failure(about).outage}, because nothing can allow them"
        message = (
            f"{effect}: headgate can't call the authorization server over TLS; see the findings about {server.key}"
        )
        notes = [Finding(about, Reason.UNSUPPORTED_PROTOCOL, f"{field}.backendRef.name", message, (server.key,))]
    settings = written.http or written.grpc or AuthHeaders()
    auth = ExternalAuth(
        ref=ref,
        protocol=written.protocol,
        path=settings.path.strip("/"),
        headers=_lower(settings.allowed_headers),
        response_headers=_lower(settings.allowed_response_headers),
        body=written.forward_body.max_size,
        tls=server.tls if server else None,
        server_protocol=(server.protocol or Protocol.HTTP) if server and written.protocol == "HTTP" else None,
    )
    return auth, notes


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name.lower() for name in names}))


def split_mirrors(backends: Sequence[RuleBackend], chosen: ChosenDestinations) -> Iterator[Mirror]:
    """Yield the mirrors of the splits behind a rule, for requests whose destinations are `chosen`.

    A proxy decides about the copy of a request apart from its backend. So a split with a part of the rule's requests
    gets copies of the same part of all of them.
    """
    total = sum(backend.weight for backend in backends)
    for backend in backends:
        choice = chosen.get(backend.port_ref) if isinstance(backend.port_ref, PortRef) else None
        for mirror in choice.mirrors if choice and backend.is_called else ():
            part = Fraction(mirror.numerator * backend.weight, mirror.denominator * total)
            yield structs.replace(mirror, numerator=part.numerator, denominator=part.denominator)


def _notes(about: Key, field: str, mirror: RequestMirror) -> Iterator[Finding]:
    numerator, denominator = proportion(mirror)
    if mirror.fraction is not None and mirror.percent is not None:
        message = (
            f"the mirror has percent and fraction; only the fraction {numerator}/{denominator} is used. Remove one of the "
            "two, because the released Gateway API rejects both together"
        )
        yield Finding(about, Reason.PERCENT_IGNORED, f"{field}.percent", message)
    if numerator * FINEST % denominator:
        parts = nearest(numerator, denominator)
        message = (
            f"proxies support fractions in millionths, so {parts} of 1000000 requests are mirrored instead of "
            f"{numerator}/{denominator}"
        )
        yield Finding(about, Reason.FRACTION_ROUNDED, f"{field}.fraction", message)


def nearest(numerator: int, denominator: int) -> int:
    """Return the number of millionths nearest to a fraction, rounding halves up."""
    return (2 * numerator * FINEST + denominator) // (2 * denominator)
