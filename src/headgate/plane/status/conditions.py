"""The report and the proxies' answers as conditions, and as the status of a TrafficSplit. Pure: it writes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from headgate.compiler.reasons import Condition, Reason
from headgate.compiler.report import Finding, GatewayOutcome, Outcome, ParentStatus, Selected, Share, Verdict
from headgate.envoy import names
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, TypeUrl
from headgate.envoy.view import SIDECAR
from headgate.resources.meta import Object, Value
from headgate.xds.fleet import Proxy

_FINE = {
    Condition.ACCEPTED: ("Accepted", "the split is valid and decides for its root"),
    Condition.RESOLVED_REFS: ("ResolvedRefs", "every Service that the split names exists and offers the root's ports"),
    Condition.BACKENDS_READY: ("BackendsReady", "every backend with a weight has ready endpoints"),
}
_CONFLICTED = "Conflicted"
_NO_SUCH_BACKEND = {
    Reason.BACKEND_NOT_FOUND,
    Reason.PORT_MISMATCH,
    Reason.PROTOCOL_MISMATCH,
    Reason.REF_NOT_PERMITTED,
}
_NAMED = 5  # proxies that a message names
Resource = tuple[TypeUrl, str]


class Said(Value, frozen=True, kw_only=True):
    """What the compiler has to say about one object; generation 0 is unknown, for what can't be decoded.

    `underway` are those of the `selected` workloads that are not in the stage that is wanted of them, `unnamed` those whose
    certificate does not carry all names yet that it is to carry.
    """

    generation: int
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    parents: tuple[ParentStatus, ...] = ()
    gateway: GatewayOutcome | None = None
    selected: Selected | None = None
    underway: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()


class Present(NamedTuple):
    """What is now: the proxies that serve, the time as RFC 3339, and the proxies that workloads' next stages wait for."""

    proxies: Sequence[Proxy]
    time: str
    awaited: Sequence[str] = ()


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
    return (*found, conflict, programmed(progress, accepted=accepted))


def _from_findings(findings: Sequence[Finding]) -> Iterator[Verdict]:
    for condition, (reason, message) in _FINE.items():
        broken = [item for item in findings if item.reason.condition is condition]
        if broken:
            text = "; ".join(dict.fromkeys(item.message for item in broken))
            yield Verdict(type=condition.value, status=False, reason=broken[0].reason.value, message=text)
        else:
            yield Verdict(type=condition.value, status=True, reason=reason, message=message)


def programmed(progress: Progress, *, accepted: bool, held: str = "") -> Verdict:
    """Return the condition that says how far the proxies are; there is nothing to hold of what is not accepted.

    `held` says how many are done, in other words than the usual ones.
    """

    def verdict(reason: str, message: str, *, status: bool = False) -> Verdict:
        return Verdict(type=Condition.PROGRAMMED.value, status=status, reason=reason, message=message)

    held = held or f"{len(progress.holding)} of {progress.total} proxies hold it"
    if not accepted:
        return verdict("Invalid", "there is nothing to program; see the other conditions")
    if progress.refused:
        words = [f"{proxy} refused it: {message.strip()}" for proxy, message in progress.refused]
        return verdict(Reason.ENVOY_REJECTED.value, f"{held}; {few(words, '; ')}")
    if not progress.total:
        return verdict("NoProxies", "there is no proxy that is to hold it")
    if progress.lagging:
        return verdict("Pending", f"{held}; waiting for {few(progress.lagging)}")
    return verdict("Programmed", held, status=True)


def few(words: Sequence[str], between: str = ", ") -> str:
    """Join words, a few at most: `a, b, c, d, e and 37 more`."""
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return between.join(words[:_NAMED]) + more


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
    weighted = any(item.weight for item in outcome.shares)
    if rest == 1 and weighted and all(item.left_out in _NO_SUCH_BACKEND for item in outcome.shares):
        yield f"the plain Service {outcome.ref.service.split('/')[-1]} 100%"
    elif rest:
        yield f"503 {_percent(rest)}"


def percent(share: Share) -> str:
    """Write a share as a percentage with two decimals at most: `33.33%`, `90%`."""
    return _percent(Fraction(share.numerator, share.denominator))


def _percent(part: Fraction) -> str:
    return f"{round(10_000 * part) / 100:.2f}".rstrip("0").rstrip(".") + "%"


def progress_of(outcomes: Sequence[Outcome], proxies: Sequence[Proxy]) -> Progress:
    """Say how far each connected proxy is with the routes, clusters and endpoints of a split."""
    return progress_at([outcome.ref for outcome in outcomes], proxies)


def progress_at(places: Sequence[names.Place], proxies: Sequence[Proxy]) -> Progress:
    """Say how far the proxies are with everything that serves some ports of Services and Gateways.

    It is about those that are to hold some of it, or hold what is to go; not about those whose view leaves it out.
    """
    at_services = any(not isinstance(place, names.GatewayRef) for place in places)
    concerned = [proxy for proxy in proxies if at_services or not proxy.id.startswith(f"{SIDECAR}/")]
    found = {proxy.id: (proxy, _resources(places, proxy)) for proxy in concerned}
    return progress_with({name: (proxy, of) for name, (proxy, of) in found.items() if of or proxy.config.get() is None})


def progress_with(wanted: Mapping[str, tuple[Proxy | None, Sequence[Resource]]]) -> Progress:
    """Say how far proxies, by their ids, are with some resources of each; one that is away lags."""
    holding, lagging, refused = [], [], []
    for name, (proxy, resources) in wanted.items():
        if proxy is None or proxy.config.get() is None:  # it has not been told yet what it is to hold
            lagging.append(name)
        elif words := next((item.message for item in proxy.refusals() if (item.type_url, item.name) in resources), ""):
            refused.append((name, words))
        elif any(proxy.lags(*pair) for pair in resources):
            lagging.append(name)
        else:
            holding.append(name)
    return Progress(holding=tuple(holding), lagging=tuple(lagging), refused=tuple(refused))


def _resources(places: Sequence[names.Place], proxy: Proxy) -> list[Resource]:
    """Return what some ports are to a proxy: where their traffic comes in, and the clusters that it may go to."""
    config, shelves = proxy.config.get() or {}, proxy.session.shelves if proxy.session else {}
    first = [
        (type_url, name)
        for place in places
        for type_url, name in _entrances(place, proxy)
        if name in config.get(type_url, {}) or (type_url in shelves and name in shelves[type_url].held)
    ]
    found = [config.get(type_url, {}).get(name) for type_url, name in first]
    used = sorted({cluster for item in found if item for cluster in item.needs})
    return [*first, *((type_url, cluster) for cluster in used for type_url in (CLUSTER, ENDPOINTS))]


def _entrances(place: names.Place, proxy: Proxy) -> list[Resource]:
    """Return the routes of a port. A Gateway's listener belongs to its port, a Service's to the Service.

    Where nothing leads to the routes, a Service's listeners have all, one for each pod if it has no address: so it is for
    connections that are redirected.
    """
    name = names.place(place)
    if isinstance(place, names.GatewayRef):
        return [*((ROUTES, item) for item in _routes_at(name, proxy)), (LISTENER, name)]
    listeners = (proxy.config.get() or {}).get(LISTENER, {})
    listener = listeners.get(name)
    for_requests = listener is not None and not listener.needs
    asked_for = proxy.session is not None and proxy.session.shelves[ROUTES].asks_for(name)
    if names.PROXY in listeners or for_requests or asked_for:
        return [(ROUTES, name)]
    return [(LISTENER, name)] if listener else [(LISTENER, one) for one in listeners if names.parse(one) == place]


def _routes_at(name: str, proxy: Proxy) -> list[str]:
    """Return the routes of a port of a Gateway: one resource, or one for each TLS listener."""
    wanted = (proxy.config.get() or {}).get(ROUTES, {})
    if name in wanted:
        return [name]
    held = proxy.session.shelves[ROUTES].held if proxy.session else {}
    return [name, *(item for item in dict.fromkeys((*wanted, *held)) if names.is_listener_of(name, item))]


def timed(verdicts: Sequence[Verdict], before: object, *, generation: int, now: str) -> list[Mapping[str, Any]]:
    """Return verdicts as `conditions`; one keeps its time from `before` while its status is the same."""
    rows = before if isinstance(before, Sequence) else ()
    known = {item["type"]: item for item in rows if isinstance(item, Mapping) and "type" in item}
    found: list[Mapping[str, Any]] = []
    for verdict in verdicts:
        text = "True" if verdict.status else "False"
        old = known.get(verdict.type, {})
        same = old.get("status") == text and "lastTransitionTime" in old
        found.append(
            {
                "type": verdict.type,
                "status": text,
                "reason": verdict.reason,
                "message": verdict.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else now,
            }
        )
    return found


def status_of(obj: Object) -> Mapping[str, Any]:
    """Return an object's status, an empty one where there is none."""
    return obj.get("status") or {}


def split_status(obj: Object, said: Said, present: Present) -> Mapping[str, Any]:
    """Return the whole status of a TrafficSplit."""
    progress = progress_of(said.outcomes, present.proxies)
    generation = said.generation or obj["metadata"].get("generation", 0)
    judged = verdicts(said.findings, progress)
    before = status_of(obj).get("conditions")
    return {
        "observedGeneration": generation,
        "conditions": timed(judged, before, generation=generation, now=present.time),
        "proxies": {"programmed": len(progress.holding), "total": progress.total},
        "ports": shares(said.outcomes),
    }
