"""Explain where a request goes, and which of the user's objects determine its destination."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from msgspec import structs

from headgate.compiler.arrivals import Arrivals, Caller
from headgate.compiler.protocols import choice_at
from headgate.compiler.references import service_key
from headgate.compiler.report import Compiled
from headgate.compiler.resilience_words import words
from headgate.compiler.snapshot import Snapshot
from headgate.model.applied_filters import backend_request, redirect_location
from headgate.model.evaluate import Decision, Portion, decide, host_fits, without_port
from headgate.model.hash_slots import slot_range_at
from headgate.model.requests import Filters, HeaderEdit, PathEdit, Redirect, Request
from headgate.model.routing import GatewayPort, Mesh, Mirror, PortRef, Route, Sticky
from headgate.model.sanitizing import FORBIDDEN
from headgate.model.traces import REQUEST_ID, trace_context, with_chosen_id
from headgate.resources.explanations import PLAIN, Backend, Copy, Explanation, Remark, Tried
from headgate.resources.meta import Key, Value, service_name
from headgate.resources.registry import TRAFFIC_SPLIT


class ExplainInput(Value, frozen=True, kw_only=True):
    """A request to explain, its URL as the user wrote it, and its caller."""

    request: Request
    url: str
    caller: Caller


def explain(compiled: Compiled, snapshot: Snapshot, where: GatewayPort | str, asked: ExplainInput) -> Explanation:
    """Explain a request that arrives at a port of a Gateway, or at the HTTP proxy for an authority."""
    request, caller = asked.request, asked.caller
    routed = with_chosen_id(request) if compiled.mesh.tracing else request
    decision = decide(compiled.mesh, where, routed, caller.home)
    if decision.entry is None and caller.is_scoped and not decision.is_refused:
        refused = Portion(share=Fraction(1), status=FORBIDDEN, reason="no Service that this caller may call")
        decision = structs.replace(decision, shares=(refused,))
    seen = decision.sanitized.request if decision.sanitized else request
    arrivals = Arrivals(compiled, snapshot, caller)
    place, route = decision.entry, decision.route
    at_service = place if isinstance(place, PortRef) else None
    gateway = place if isinstance(place, GatewayPort) else None
    return Explanation(
        method=request.method,
        url=asked.url,
        caller=caller.name,
        identity=caller.identity,
        caller_note=caller.note,
        service=at_service.service if at_service else "",
        gateway=gateway.gateway if gateway else "",
        port=place.port if place else 0,
        protocol=decision.protocol.value if place else "",
        protocol_reason=_protocol_reason(snapshot, at_service, gateway),
        host=decision.host,
        sanitized=tuple(_sanitized(compiled.mesh, request, decision)),
        object=_origin(route) if route else "",
        route=route.name if route else "",
        matches=_matches(route) if route else (),
        backends=tuple(_backend(portion, route, seen, arrivals) for portion in decision.shares),
        mirrors=tuple(
            copy for mirror in decision.mirrors if mirror.numerator for copy in _copies(mirror, seen, arrivals)
        ),
        filters=tuple(_route_filters(route)) if route else (),
        location=redirect_location(seen, route, "https" if gateway and gateway.tls else "http", place.port)
        if route and place
        else "",
        sticky=_sticky(route.split.sticky) if route else "",
        user=_user(decision),
        nothing_left=_fallback(decision),
        candidates=tuple(_candidates(compiled.mesh, decision, seen)),
        remarks=tuple(_remarks(compiled, snapshot, decision)),
        trace=_trace(compiled.mesh, request),
    )


def _trace(mesh: Mesh, request: Request) -> str:
    context = trace_context(request.headers)
    if context is None:
        return ""
    decision = "sampled by the client" if context.is_sampled else "not sampled by the client"
    return f"{context.trace}, {decision}" + ("" if mesh.tracing else "; proxies send no spans without --otlp-traces")


def _sanitized(mesh: Mesh, request: Request, decision: Decision) -> Iterator[str]:
    if decision.sanitized:
        if decision.sanitized.status:
            yield f"the proxy refuses the request with {decision.sanitized.status}: {decision.sanitized.reason}"
        yield from decision.sanitized.changes
        if mesh.tracing and any(name.lower() == REQUEST_ID for name, _ in request.headers):
            yield f"{REQUEST_ID} is an ID that the proxy has chosen, until the route is selected: traces are on"


def _protocol_reason(snapshot: Snapshot, at_service: PortRef | None, gateway: GatewayPort | None) -> str:
    if gateway:
        return "because the Gateway's listener has this protocol"
    if at_service is None:
        return ""
    return choice_at(snapshot, at_service).why


def _origin(route: Route) -> str:
    return str(route.origin or PLAIN)


def _backend(portion: Portion, route: Route | None, request: Request, arrivals: Arrivals) -> Backend:
    sent = backend_request(request, route, portion.filters) if route else request
    return Backend(
        service=portion.ref.service if portion.ref else "",
        port=portion.ref.port if portion.ref else 0,
        share=str(portion.share),
        percent=_percent(portion.share),
        endpoints=portion.endpoints,
        status=portion.status,
        reason=portion.reason,
        filters=tuple(filter_words(portion.filters)),
        arrivals=arrivals.at(portion.ref, sent, portion.pod) if portion.ref and not portion.status else (),
    )


def _copies(mirror: Mirror, request: Request, arrivals: Arrivals) -> Iterator[Copy]:
    total = sum(target.weight for target in mirror.targets)
    for target in mirror.targets:
        share = Fraction(mirror.numerator * target.weight, mirror.denominator * total)
        service, port = target.ref
        found = arrivals.at(target.ref, request)
        yield Copy(service=service, port=port, share=str(share), percent=_percent(share), arrivals=found)


def _matches(route: Route) -> tuple[str, ...]:
    return tuple(f"{step.match} of {step.split}" for step in route.split_matches)


def _percent(share: Fraction) -> float:
    return round(float(share * 100), 4)


def _route_filters(route: Route) -> Iterator[str]:
    if route.redirect:
        yield redirect_words(route.redirect)
    yield from filter_words(route.filters)
    if route.timeouts.request:
        yield f"timeout of the request: {route.timeouts.request} ms"
    if route.timeouts.backend:
        yield f"timeout of each attempt: {route.timeouts.backend} ms"
    yield from words(route)


def filter_words(filters: Filters) -> Iterator[str]:
    """Yield a line for each change that filters make."""
    yield from _edits("request", filters.request)
    yield from _edits("response", filters.response)
    if filters.rewrite and filters.rewrite.hostname:
        yield f"rewrite the host to {filters.rewrite.hostname}"
    if filters.rewrite and filters.rewrite.path:
        yield f"rewrite {_path(filters.rewrite.path)}"


def _edits(part: str, edit: HeaderEdit | None) -> Iterator[str]:
    if edit is None:
        return
    yield from (f"set {part} header {name}: {value}" for name, value in edit.set)
    yield from (f"add {part} header {name}: {value}" for name, value in edit.add)
    yield from (f"remove {part} header {name}" for name in edit.remove)


def _path(path: PathEdit) -> str:
    return f"the path to {path.value}" if path.kind == "full" else f"the matched prefix of the path to {path.value}"


def redirect_words(redirect: Redirect) -> str:
    """Return a redirect in words."""
    parts = (
        f"scheme {redirect.scheme}" if redirect.scheme else "",
        f"host {redirect.hostname}" if redirect.hostname else "",
        f"port {redirect.port}" if redirect.port else "",
        _path(redirect.path) if redirect.path else "",
    )
    return f"redirect with {redirect.status}: {', '.join(part for part in parts if part) or 'to the same address'}"


def _sticky(sticky: Sticky | None) -> str:
    if sticky is None:
        return ""
    by = {
        "cookie": f"the cookie {sticky.name}",
        "header": f"the header {sticky.name}",
        "source": "the client's address",
    }
    return f"by {by[sticky.kind]}: a user stays with one backend"


def _user(decision: Decision) -> str:
    """Return the backend to which a sticky split assigns the request's user, if the request identifies a user."""
    sticky = decision.route.split.sticky if decision.route else None
    if sticky is None or decision.slot is None:
        return ""
    side = slot_range_at(sticky, decision.slot)
    return str(side.ref) if side.ref else f"the proxy: {side.status}"


def _fallback(decision: Decision) -> str:
    """Return a text that says what happens when no backend can get traffic (D9 to D11)."""
    route = decision.route
    if route is None or route.redirect:
        return ""
    outcome = "503 from the proxy" if decision.protocol.is_http else "the connection is closed"
    if route.origin is None:
        return f"if the Service has no ready endpoint: {outcome}"
    if route.origin.kind == TRAFFIC_SPLIT.kind:
        return (
            f"if no backend has a ready endpoint and a weight above 0: {outcome}; if no backend has the port: {PLAIN}"
        )
    if not decision.protocol.is_http:
        return f"if no backend is usable: {outcome}"
    return "the share of a backend without a ready endpoint: 503; the share of an unusable backend: 500"


def _candidates(mesh: Mesh, decision: Decision, request: Request) -> Iterator[Tried]:
    place = decision.entry
    routes: tuple[Route, ...] = ()
    if isinstance(place, PortRef):
        routes = next(table.routes for table in mesh.tables if table.ref == place)
    elif place is not None:
        for _, entry in sorted(place.hosts.items()):
            if entry.host == decision.host:
                routes = entry.routes
            else:
                yield _other_host(entry.host, decision.host, without_port(request.authority).lower())
    for candidate in decision.tried:
        yield _tried(candidate.route, "failed" if candidate.unmet else "matched", str(candidate.unmet or ""))
    for route in routes[len(decision.tried) :]:
        yield _tried(route, "not tried")


def _other_host(host: str, chosen: str, asked: str) -> Tried:
    fits = host_fits(host.lower(), asked)
    condition = f"host {chosen} is more specific" if fits else f"host is {asked!r}, wanted {host}"
    return Tried(object=f"host {host}", name="", matches=(), result="failed", condition=condition)


def _tried(route: Route, result: str, condition: str = "") -> Tried:
    return Tried(object=_origin(route), name=route.name, matches=_matches(route), result=result, condition=condition)


def _remarks(compiled: Compiled, snapshot: Snapshot, decision: Decision) -> Iterator[Remark]:
    """Yield the findings about the request's route, the splits of its Service, and the policies of its pods."""
    about = {candidate.route.origin for candidate in decision.tried}
    about |= {step.split for candidate in decision.tried for step in candidate.route.split_matches}
    about |= set(_claimants(compiled, snapshot, decision))
    about |= set(_selecting(compiled, decision))
    for finding in compiled.report.findings:
        if finding.about in about:
            word, field = finding.reason.value, finding.field
            yield Remark(object=str(finding.about), reason=word, field=field, message=finding.message)


def _claimants(compiled: Compiled, snapshot: Snapshot, decision: Decision) -> Iterable[Key]:
    if not isinstance(decision.entry, PortRef):
        return
    service = decision.entry.service
    yield service_key(service)
    named: Mapping[Key, str] = {key: split.spec.service for key, split in snapshot.splits}
    for key, written in named.items():
        if service_name(written, key.namespace, compiled.mesh.domain) == service:
            yield key


def _selecting(compiled: Compiled, decision: Decision) -> Iterator[Key]:
    """Yield the TrafficTargets and TLSConfigs that select one of the pods."""
    refs = {portion.ref for portion in decision.shares}
    pods = {endpoint.workload for entry in compiled.mesh.endpoints if entry.ref in refs for endpoint in entry.ready}
    for item in compiled.report.selected:
        if not pods.isdisjoint((*item.workloads, *item.without_sidecar)):
            yield item.about
