"""The treatment of requests by a route: what two worlds must have in common, so that a plan does not report a request."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import structs

from headgate.compiler.resilience_words import words
from headgate.model.cors import Cors
from headgate.model.edge_tls import BackendTls
from headgate.model.evaluate import copies, shares
from headgate.model.requests import NO_FILTERS, Filters, Redirect, Timeouts
from headgate.model.routing import Endpoint, ExternalAuth, PortRef, Protocol, Route, Sticky, Target
from headgate.model.sessions import PersistentSession
from headgate.resources.meta import Value

Ready = Mapping[PortRef, Sequence[Endpoint]]


class ReceivedShare(Value, frozen=True, kw_only=True):
    """A share of the requests that reach a Service port, or that the proxy answers with a `status`.

    `address` is the DNS name of a server outside the mesh. Without a `protocol`, the port's own applies.
    """

    share: Fraction
    ref: PortRef | None = None
    status: int = 0
    reason: str = ""
    filters: Filters = NO_FILTERS
    tls: BackendTls | None = None
    redirect: Redirect | None = None
    protocol: Protocol | None = None
    address: str = ""

    @property
    def name(self) -> str:
        """The backend as text: `default/website:8080`, or the proxy's answer: `503 (NoReadyEndpoints)`."""
        if not self.status:
            return str(self.ref)
        reason = ": ".join(part for part in (str(self.ref or ""), self.reason) if part)
        return f"{self.status}" + (f" ({reason})" if reason else "")


class MirrorShare(Value, frozen=True, kw_only=True):
    """The fraction of the requests whose copies reach a Service port, with the fields of `ReceivedShare`."""

    share: Fraction
    ref: PortRef
    tls: BackendTls | None = None
    protocol: Protocol | None = None
    address: str = ""


class Treatment(Value, frozen=True, kw_only=True):
    """All that a proxy does with the requests of a route, except for numbers and addresses of pods.

    `protocol` is that of the port. `sessions` has those of single backends. `auth_address` is the DNS name of an authorization server outside the mesh. `matched_prefix` is set if a filter replaces the matched prefix of the path. `resilience` has
    the settings about failures of endpoints, in words.
    """

    receivers: tuple[ReceivedShare, ...]
    protocol: Protocol = Protocol.HTTP
    redirect: Redirect | None = None
    cors: Cors | None = None
    external_auth: ExternalAuth | None = None
    auth_address: str = ""
    session: PersistentSession | None = None
    sessions: tuple[tuple[PortRef, PersistentSession], ...] = ()
    filters: Filters = NO_FILTERS
    mirrors: tuple[MirrorShare, ...] = ()
    timeouts: Timeouts = Timeouts()
    resilience: tuple[str, ...] = ()
    sticky: Sticky | None = None
    matched_prefix: str = ""

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """The shares by name: those of backends, and of the proxy's own answers by status."""
        by_name: dict[str, Fraction] = {}
        for receiver in self.receivers:
            by_name[receiver.name] = by_name.get(receiver.name, Fraction()) + receiver.share
        return by_name


def answered_by_proxy(status: int, reason: str = "") -> Treatment:
    """Return the treatment of requests that the proxy answers itself."""
    return Treatment(receivers=(ReceivedShare(share=Fraction(1), status=status, reason=reason),))


def external_name(ready: Ready, ref: PortRef) -> str:
    """Return the DNS name that proxies resolve for a Service port or server outside the mesh; empty for one in the mesh."""
    return next((endpoint.address for endpoint in ready.get(ref, ()) if endpoint.resolved), "")


def treatment_of(route: Route, ready: Ready, protocol: Protocol = Protocol.HTTP) -> Treatment:
    """Return how a route treats its requests. A share with no ready endpoint is answered with 503."""
    portions = shares(route, {target.ref: tuple(ready.get(target.ref, ())) for target in route.split.targets})
    receivers = tuple(
        ReceivedShare(
            share=portion.share,
            ref=portion.ref,
            status=portion.status,
            reason=portion.reason,
            filters=portion.filters,
            tls=portion.tls,
            redirect=portion.redirect,
            protocol=portion.protocol,
            address=external_name(ready, portion.ref) if portion.ref else "",
        )
        for portion in portions
        if portion.share
    )
    served = any(not receiver.status for receiver in receivers)
    return Treatment(
        receivers=tuple(sorted(_united(receivers), key=_order)),
        protocol=protocol,
        redirect=route.redirect,
        cors=route.cors,
        external_auth=route.external_auth,
        auth_address=external_name(ready, route.external_auth.ref) if route.external_auth else "",
        session=route.session,
        sessions=tuple((target.ref, target.session) for target in route.split.targets if target.session),
        filters=route.filters,
        mirrors=tuple(_copies(route, ready)) if served else (),
        timeouts=route.timeouts,
        resilience=tuple(words(route)),
        sticky=route.split.sticky,
        matched_prefix=_matched_prefix(route),
    )


def _order(receiver: ReceivedShare) -> tuple[str, str]:
    return receiver.name, repr((receiver.filters, receiver.redirect, receiver.tls, receiver.protocol))


def _united(receivers: Sequence[ReceivedShare]) -> list[ReceivedShare]:
    """Return the receivers with one item for equal ones; the shares of equal ones add up."""
    united: dict[ReceivedShare, ReceivedShare] = {}
    for receiver in receivers:
        key = structs.replace(receiver, share=Fraction())
        before = united[key].share if key in united else Fraction()
        united[key] = structs.replace(receiver, share=before + receiver.share)
    return list(united.values())


def _copies(route: Route, ready: Ready) -> Sequence[MirrorShare]:
    by_backend: dict[PortRef, Fraction] = {}
    called: dict[PortRef, Target] = {}
    for mirror in route.mirrors:
        targets = tuple(target for target in mirror.targets if ready.get(target.ref))
        for target, share in copies(structs.replace(mirror, targets=targets)):
            by_backend[target.ref] = by_backend.get(target.ref, Fraction()) + share
            called[target.ref] = target
    return [
        MirrorShare(
            ref=ref,
            share=share,
            tls=called[ref].tls,
            protocol=called[ref].protocol,
            address=external_name(ready, ref),
        )
        for ref, share in sorted(by_backend.items())
        if share
    ]


def _matched_prefix(route: Route) -> str:
    rewrites = [filters.rewrite for filters in (route.filters, *(_filters(target) for target in route.split.targets))]
    redirects = [route.redirect, *(share.redirect for share in route.split.redirected)]
    paths = [edit.path for edit in (*rewrites, *redirects) if edit]
    path = route.match.path
    if not path or path.kind != "prefix" or all(edit is None or edit.kind == "full" for edit in paths):
        return ""
    return path.value


def _filters(target: Target) -> Filters:
    return target.filters
