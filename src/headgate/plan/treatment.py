"""The treatment of requests by a route: what two worlds must have in common, so that a plan does not report a request."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from headgate.compiler.resilience_words import words
from headgate.model.evaluate import shares
from headgate.model.requests import NO_FILTERS, Filters, Redirect, Timeouts
from headgate.model.routing import Endpoint, PortRef, Protocol, Route, Sticky, Target
from headgate.resources.meta import Value

Ready = Mapping[PortRef, Sequence[Endpoint]]


class ReceivedShare(Value, frozen=True, kw_only=True):
    """A share of the requests that reach a Service port, or that the proxy answers with a `status`."""

    share: Fraction
    ref: PortRef | None = None
    status: int = 0
    reason: str = ""
    filters: Filters = NO_FILTERS

    @property
    def name(self) -> str:
        """The backend as text: `default/website:8080`, or the proxy's answer: `503 (NoReadyEndpoints)`."""
        if not self.status:
            return str(self.ref)
        reason = ": ".join(part for part in (str(self.ref or ""), self.reason) if part)
        return f"{self.status}" + (f" ({reason})" if reason else "")


class MirrorShare(Value, frozen=True, kw_only=True):
    """The fraction of the requests whose copies reach a Service port."""

    share: Fraction
    ref: PortRef


class Treatment(Value, frozen=True, kw_only=True):
    """All that a proxy does with the requests of a route, except for numbers and addresses of pods.

    `protocol` is that of the port. `matched_prefix` is set if a filter replaces the matched prefix of the path. `resilience` has
    the settings about failures of endpoints, in words.
    """

    receivers: tuple[ReceivedShare, ...]
    protocol: Protocol = Protocol.HTTP
    redirect: Redirect | None = None
    filters: Filters = NO_FILTERS
    mirrors: tuple[MirrorShare, ...] = ()
    timeouts: Timeouts = Timeouts()
    resilience: tuple[str, ...] = ()
    sticky: Sticky | None = None
    matched_prefix: str = ""

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """The share of each backend and of each status of the proxy's own answers, by name."""
        found: dict[str, Fraction] = {}
        for item in self.receivers:
            found[item.name] = found.get(item.name, Fraction()) + item.share
        return found


def answered_by_proxy(status: int, reason: str = "") -> Treatment:
    """Return the treatment of requests that the proxy answers itself."""
    return Treatment(receivers=(ReceivedShare(share=Fraction(1), status=status, reason=reason),))


def treatment_of(route: Route, ready: Ready, protocol: Protocol = Protocol.HTTP) -> Treatment:
    """Return the treatment of the requests of a route. A share with no ready endpoint is answered with 503."""
    found = shares(route, {target.ref: tuple(ready.get(target.ref, ())) for target in route.split.targets})
    receivers = tuple(
        ReceivedShare(share=item.share, ref=item.ref, status=item.status, reason=item.reason, filters=item.filters)
        for item in found
        if item.share
    )
    served = any(not item.status for item in receivers)
    return Treatment(
        receivers=tuple(sorted(_united(receivers), key=_order)),
        protocol=protocol,
        redirect=route.redirect,
        filters=route.filters,
        mirrors=tuple(_copies(route, ready)) if served else (),
        timeouts=route.timeouts,
        resilience=tuple(words(route)),
        sticky=route.split.sticky,
        matched_prefix=_matched_prefix(route),
    )


def _order(item: ReceivedShare) -> tuple[str, str]:
    return item.name, repr(item.filters)


def _united(receivers: Sequence[ReceivedShare]) -> list[ReceivedShare]:
    """Return the receivers with one item for equal ones; the shares of equal ones add up."""
    found: dict[tuple[object, ...], ReceivedShare] = {}
    for item in receivers:
        key = item.ref, item.status, item.reason, item.filters
        before = found[key].share if key in found else Fraction()
        found[key] = ReceivedShare(
            share=before + item.share, ref=item.ref, status=item.status, reason=item.reason, filters=item.filters
        )
    return list(found.values())


def _copies(route: Route, ready: Ready) -> Sequence[MirrorShare]:
    found: dict[PortRef, Fraction] = {}
    for mirror in route.mirrors:
        targets = [target for target in mirror.targets if ready.get(target.ref)]
        total = sum(target.weight for target in targets)
        for target in targets:
            share = Fraction(mirror.numerator * target.weight, mirror.denominator * total)
            found[target.ref] = found.get(target.ref, Fraction()) + share
    return [MirrorShare(ref=ref, share=share) for ref, share in sorted(found.items()) if share]


def _matched_prefix(route: Route) -> str:
    rewrites = [item.rewrite for item in (route.filters, *(_filters(target) for target in route.split.targets))]
    paths = [rewrite.path for rewrite in rewrites if rewrite] + [route.redirect.path if route.redirect else None]
    path = route.match.path
    if not path or path.kind != "prefix" or all(item is None or item.kind == "full" for item in paths):
        return ""
    return path.value


def _filters(target: Target) -> Filters:
    return target.filters
