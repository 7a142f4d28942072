"""Compute the share of requests that each backend should get, and compare counted requests with the shares."""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from headgate.compiler.reasons import ConditionType, Reason
from headgate.resources.explanations import PLAIN, Explanation
from headgate.resources.meta import Object, Value, service_name
from headgate.resources.smi import NO_ENDPOINTS
from headgate.settings import Settings

SIGMAS = 3
DIGITS = 9  # decimal places of a share in the output
DOMAIN = Settings().domain
FAILED_SHARE = "(503)"
"""The name of the share that proxies answer with 503, because its backends have no ready endpoints (D9 `fail`)."""
_UNRESOLVED = {
    Reason.BACKEND_NOT_FOUND.value,
    Reason.PORT_MISMATCH.value,
    Reason.PROTOCOL_MISMATCH.value,
    Reason.REF_NOT_PERMITTED.value,
}


class ExpectedShares(Value, frozen=True, kw_only=True):
    """The exact share of each backend, as `namespace/name`, of the requests to a Service port.

    If a split sets the shares, `split` is its `namespace/name`. If a route sets them, `route` is its text:
    `HTTPRoute default/web, rule 0`. Both are empty for a plain Service.
    """

    service: str
    port: int
    split: str = ""
    route: str = ""
    shares: tuple[tuple[str, Fraction], ...]


class Fit(Value, frozen=True, kw_only=True):
    """A backend: its wanted share, its counted requests, and the band of 3 sigma, as shares from 0 to 1."""

    backend: str
    wanted: float
    observed: float
    requests: int
    lowest: float
    highest: float
    fits: bool


def expected_shares(service: str, port: int, splits: Iterable[Object]) -> ExpectedShares:
    """Return the shares that the first accepted split sets for a Service port; without a split, 1 for the Service."""
    for split in splits:
        if root_of(split) == service and _is_accepted(split):
            for entry in (split.get("status") or {}).get("ports") or ():
                if entry["port"] == port:
                    return _split_shares(service, port, split, entry["backends"])
    return ExpectedShares(service=service, port=port, shares=((service, Fraction(1)),))


def expected_by_route(service: str, port: int, found: Explanation) -> ExpectedShares:
    """Return the shares of the route in an explanation; requests that the proxy itself answers belong to no backend."""
    shares: dict[str, Fraction] = {}
    for backend in found.backends:
        if backend.service:
            shares[backend.service] = shares.get(backend.service, Fraction(0)) + Fraction(backend.share)
    route = "" if found.object == PLAIN else found.words or "no route matches"
    return ExpectedShares(service=service, port=port, route=route, shares=tuple(shares.items()))


def root_of(split: Object) -> str:
    """Return the root Service of a split, as `namespace/name`."""
    return service_name(split["spec"]["service"], split["metadata"]["namespace"], DOMAIN)


def _is_accepted(split: Object) -> bool:
    conditions = {item["type"]: item["status"] for item in (split.get("status") or {}).get("conditions") or ()}
    return conditions.get(ConditionType.ACCEPTED.value) == "True"


def _split_shares(service: str, port: int, split: Object, backends: Sequence[Mapping[str, object]]) -> ExpectedShares:
    metadata = split["metadata"]
    names = [service_name(item["service"], metadata["namespace"], DOMAIN) for item in split["spec"]["backends"]]
    keeps = (metadata.get("annotations") or {}).get(NO_ENDPOINTS) == "fail"
    weights: dict[str, int] = {}
    for name, backend in zip(names, backends, strict=False):
        reason, weight = backend.get("reason"), int(str(backend["weight"]))
        if reason == Reason.NO_READY_ENDPOINTS.value and keeps:
            weights[FAILED_SHARE] = weights.get(FAILED_SHARE, 0) + weight
        weights[name] = 0 if reason else weight
    weighted = any(int(str(backend["weight"])) for backend in backends)
    if weighted and all(backend.get("reason") in _UNRESOLVED for backend in backends):
        weights = {service: 1}  # R42: without resolved backends, the root Service gets all requests
    total = sum(weights.values())
    shares = tuple((name, Fraction(weight, total or 1)) for name, weight in weights.items())
    return ExpectedShares(
        service=service, port=port, split=f"{metadata['namespace']}/{metadata['name']}", shares=shares
    )


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
