"""Compute the share of requests that each backend should get, and compare counted requests with the shares."""

import math
from collections.abc import Mapping
from fractions import Fraction

from headgate.compiler.reasons import Reason
from headgate.compiler.report import SplitOutcome
from headgate.resources.explanations import ExplanationStatus, LeftOutBackend, Stickiness
from headgate.resources.meta import Object, Value, service_name
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.settings import Settings

SIGMAS = 3
DIGITS = 9  # decimal places of a share in the output
DOMAIN = Settings().domain
FAILED_SHARE = "(503)"
"""The name of the share that proxies answer with 503, because its backends have no ready endpoints (D9 `fail`)."""
_NOT_READY = Reason.NO_READY_ENDPOINTS.value


class ExpectedShares(Value, frozen=True, kw_only=True):
    """The exact share of each backend, as `namespace/name`, of the requests to a Service port.

    If a split sets the shares, `split` is its `namespace/name`. If a route sets them, `route` is its text:
    `HTTPRoute default/web, rule 0`. Both are empty for a plain Service. `left_out` has the backends of the split with a
    weight that get nothing, and `missing` those of them that do not exist or can't be used. If a sticky split sees one user in
    all requests, `user` says what identifies this user.
    """

    service: str
    port: int
    split: str = ""
    route: str = ""
    shares: tuple[tuple[str, Fraction], ...]
    left_out: tuple[LeftOutBackend, ...] = ()
    missing: tuple[str, ...] = ()
    user: Stickiness | None = None


class Fit(Value, frozen=True, kw_only=True):
    """A backend: its wanted share, its counted requests, and the band of 3 sigma, as shares from 0 to 1."""

    backend: str
    wanted: float
    observed: float
    requests: int
    lowest: float
    highest: float
    fits: bool


def of_outcome(outcome: SplitOutcome) -> ExpectedShares:
    """Return the shares of a split on one port; those of the root Service and of 503 responses only if there are some."""
    shares = {
        **{backend.service: backend.share for backend in outcome.shares},
        **({outcome.ref.service: outcome.root} if outcome.root else {}),
        **({FAILED_SHARE: outcome.failed} if outcome.failed else {}),
    }
    service, port, _ = outcome.ref
    split = f"{outcome.about.namespace}/{outcome.about.name}"
    return ExpectedShares(service=service, port=port, split=split, shares=tuple(shares.items()))


def of_request(service: str, port: int, explanation: ExplanationStatus, split: Object | None = None) -> ExpectedShares:
    """Return the shares of the route in an explanation; requests that the proxy itself answers belong to no backend.

    If the object of the route is a `split`, each of its backends has a share, and so have requests that it lets fail (D9).
    All requests of a sticky split's user belong to the user's backend.
    """
    shares = dict.fromkeys(_backends(split) if split else (), Fraction(0))
    for backend in explanation.backends:
        failed = FAILED_SHARE if split and backend.reason == _NOT_READY else ""
        if name := backend.service or failed:
            shares[name] = shares.get(name, Fraction(0)) + backend.share.fraction
    if user := _one_user(explanation.stickiness):
        served = FAILED_SHARE if user.status_code else user.service
        shares = {**dict.fromkeys(shares, Fraction(0)), served: Fraction(1)}
    chosen = explanation.route
    about = chosen.object if chosen else None
    of_split = f"{about.namespace}/{about.name}" if about and about.kind == TRAFFIC_SPLIT.kind else ""
    route = ""
    if not of_split and (about or not chosen):
        route = chosen.words if chosen else "no route matches"
    return ExpectedShares(
        service=service,
        port=port,
        split=of_split,
        route=route,
        shares=tuple(shares.items()),
        left_out=explanation.left_out,
        missing=tuple(backend.service for backend in explanation.left_out if backend.reason != _NOT_READY),
        user=user,
    )


def _one_user(stickiness: Stickiness | None) -> Stickiness | None:
    """Return the stickiness of equal requests if they identify one user. They have no address: they arrive at a unix socket."""
    return stickiness if stickiness and (stickiness.service or stickiness.status_code) else None


def _backends(split: Object) -> list[str]:
    """Return the backends of a split, as `namespace/name`."""
    namespace = split["metadata"]["namespace"]
    return [service_name(backend["service"], namespace, DOMAIN) for backend in split["spec"]["backends"]]


def root_of(split: Object) -> str:
    """Return the root Service of a split, as `namespace/name`."""
    return service_name(split["spec"]["service"], split["metadata"]["namespace"], DOMAIN)


def fits(want: ExpectedShares, counts: Mapping[str, int]) -> tuple[Fit, ...]:
    """Compare counts by backend with the shares: |k/N - p| <= 3 * sqrt(p * (1-p) / N).

    Shares of 0 and 1 must match exactly.
    """
    total = sum(counts.values())
    shares = {**dict.fromkeys(counts, Fraction(0)), **dict(want.shares)}
    order = [name for name, _ in want.shares] + sorted(counts.keys() - dict(want.shares).keys())
    return tuple(_fit(name, shares[name], counts.get(name, 0), total) for name in order)


def _fit(backend: str, share: Fraction, count: int, total: int) -> Fit:
    p = float(share)
    width = SIGMAS * math.sqrt(p * (1 - p) / total) if total else 0.0
    observed = count / total if total else 0.0
    exact = share in (0, 1)
    return Fit(
        backend=backend,
        wanted=round(p, DIGITS),
        observed=round(observed, DIGITS),
        requests=count,
        lowest=round(max(0.0, p - width), DIGITS),
        highest=round(min(1.0, p + width), DIGITS),
        fits=total > 0 and (count == share * total if exact else abs(observed - p) <= width),
    )
