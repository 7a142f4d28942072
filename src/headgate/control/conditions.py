"""The report and the proxies' answers as the status of a TrafficSplit. Pure: what is, not what to write."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from headgate.compiler.reasons import Condition, Reason
from headgate.compiler.report import Finding, Outcome, Share
from headgate.envoy import names
from headgate.envoy.config import CLUSTER, ENDPOINTS, ROUTES, TypeUrl
from headgate.model.routing import PortRef
from headgate.resources.meta import Value
from headgate.xds.fleet import Proxy

_FINE = {
    Condition.ACCEPTED: ("Accepted", "the split is valid and decides for its root"),
    Condition.RESOLVED_REFS: ("ResolvedRefs", "every Service that the split names exists and offers the root's ports"),
    Condition.BACKENDS_READY: ("BackendsReady", "every backend with a weight has ready endpoints"),
}
_CONFLICTED = "Conflicted"
_NO_SUCH_BACKEND = {Reason.BACKEND_NOT_FOUND, Reason.PORT_MISMATCH, Reason.REF_NOT_PERMITTED}


class Verdict(Value, frozen=True, kw_only=True):
    """One condition, without the times that the writer adds."""

    type: str
    status: bool
    reason: str
    message: str


class Progress(Value, frozen=True, kw_only=True):
    """How far the proxies are with an object: names of those that hold it, lag, or refused it (with Envoy's words)."""

    holding: tuple[str, ...] = ()
    lagging: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """How many proxies there are."""
        return len(self.holding) + len(self.lagging) + len(self.refused)


def verdicts(findings: Sequence[Finding], progress: Progress) -> tuple[Verdict, ...]:
    """Return the conditions of an object, in their order."""
    found = tuple(_from_findings(findings))
    conflicted = [item for item in findings if item.reason is Reason.CONFLICTED]
    conflict = Verdict(
        type=_CONFLICTED,
        status=bool(conflicted),
        reason=_CONFLICTED if conflicted else "NoConflicts",
        message=conflicted[0].message if conflicted else "no other split claims the root",
    )
    accepted = found[0].status and not any(item.reason is Reason.SERVICE_NOT_FOUND for item in findings)
    return (*found, conflict, _programmed(progress, accepted=accepted))


def _from_findings(findings: Sequence[Finding]) -> Iterator[Verdict]:
    for condition, (reason, message) in _FINE.items():
        broken = [item for item in findings if item.reason.condition is condition]
        if broken:
            text = "; ".join(dict.fromkeys(item.message for item in broken))
            yield Verdict(type=condition.value, status=False, reason=broken[0].reason.value, message=text)
        else:
            yield Verdict(type=condition.value, status=True, reason=reason, message=message)


def _programmed(progress: Progress, *, accepted: bool) -> Verdict:
    def verdict(reason: str, message: str, *, status: bool = False) -> Verdict:
        return Verdict(type=Condition.PROGRAMMED.value, status=status, reason=reason, message=message)

    held = f"{len(progress.holding)} of {progress.total} proxies hold it"
    if not accepted:
        return verdict("Invalid", "there is nothing to program; see the other conditions")
    if progress.refused:
        words = "; ".join(f"{proxy} refused it: {message.strip()}" for proxy, message in progress.refused)
        return verdict(Reason.ENVOY_REJECTED.value, f"{held}; {words}")
    if not progress.total:
        return verdict("NoProxies", "no proxy is connected")
    if progress.lagging:
        return verdict("Pending", f"{held}; waiting for {', '.join(progress.lagging)}")
    return verdict("Programmed", held, status=True)


def shares(outcomes: Sequence[Outcome]) -> list[Mapping[str, Any]]:
    """Return `status.ports`: what each backend gets on each port of the root."""
    return [{"port": outcome.ref.port, "backends": [_share(item) for item in outcome.shares]} for outcome in outcomes]


def _share(share: Share) -> Mapping[str, Any]:
    found = {
        "service": share.service.split("/")[-1],
        "weight": share.weight,
        "percent": percent(share),
        "endpoints": share.endpoints,
    }
    return found | {"reason": share.left_out.value} if share.left_out else found


def summary(outcomes: Sequence[Outcome]) -> str:
    """Write the shares in one line, for Events: `port 8080: website-v1 90%, website-v2 10%`."""
    return "; ".join(f"port {outcome.ref.port}: {', '.join(_parts(outcome))}" for outcome in outcomes)


def _parts(outcome: Outcome) -> Iterator[str]:
    """Yield who gets what, and what becomes of the requests that no backend gets (D9, D10)."""
    for item in outcome.shares:
        yield f"{item.service.split('/')[-1]} {percent(item)}"
    rest = 1 - sum((Fraction(item.numerator, item.denominator) for item in outcome.shares), Fraction(0))
    if rest == 1 and all(item.left_out in _NO_SUCH_BACKEND for item in outcome.shares):
        yield f"the plain Service {outcome.ref.service.split('/')[-1]} 100%"
    elif rest:
        yield f"503 {_percent(rest)}"


def percent(share: Share) -> str:
    """Write a share as a percentage with two decimals at most: `33.33%`, `90%`."""
    return _percent(Fraction(share.numerator, share.denominator))


def _percent(part: Fraction) -> str:
    return f"{round(10_000 * part) / 100:.2f}".rstrip("0").rstrip(".") + "%"


def progress_of(outcomes: Sequence[Outcome], proxies: Sequence[Proxy]) -> Progress:
    """Say how far each connected proxy is with the routes, clusters and endpoints of an object."""
    holding, lagging, refused = [], [], []
    for proxy in proxies:
        wanted = [pair for outcome in outcomes for pair in _resources(outcome.ref, proxy)]
        words = [item.message for item in proxy.refusals() if (item.type_url, item.name) in wanted]
        if words:
            refused.append((proxy.id, words[0]))
        elif any(proxy.lags(*pair) for pair in wanted):
            lagging.append(proxy.id)
        else:
            holding.append(proxy.id)
    return Progress(holding=tuple(holding), lagging=tuple(lagging), refused=tuple(refused))


def _resources(ref: PortRef, proxy: Proxy) -> list[tuple[TypeUrl, str]]:
    """Return what a split is to a proxy: the routes of its root's port, and the clusters that these name."""
    name = names.outbound(ref)
    routes = (proxy.config.get() or {}).get(ROUTES, {}).get(name)
    used = sorted(routes.needs) if routes else []
    return [(ROUTES, name), *((type_url, cluster) for cluster in used for type_url in (CLUSTER, ENDPOINTS))]
