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
from headgate.model import cors, edge_tls, sessions
from headgate.model.applied_filters import backend_request, redirect_location
from headgate.model.evaluate import (
    NO_SUCH_PORT,
    NOT_CONNECTED,
    PASSED_THROUGH,
    PREFLIGHT_REQUEST,
    UNAVAILABLE,
    Decision,
    EntryPort,
    Portion,
    copies,
    decide,
)
from headgate.model.hash_slots import slot_range_at
from headgate.model.host_names import host_fits, without_port
from headgate.model.requests import Filters, HeaderEdit, PathEdit, Redirect, Request
from headgate.model.routing import ExternalAuth, GatewayPort, Mesh, Mirror, PortRef, Protocol, Route
from headgate.model.sanitizing import FORBIDDEN
from headgate.model.traces import REQUEST_ID, trace_context, with_chosen_id
from headgate.resources.explanations import (
    PLAIN,
    ChosenMatch,
    ClientTrace,
    Copy,
    ExplainedBackend,
    ExplainedCaller,
    ExplainedRoute,
    ExplanationStatus,
    LeftOutBackend,
    Remark,
    Sanitizing,
    Stickiness,
    Tried,
)
from headgate.resources.inspect import exact_share
from headgate.resources.meta import Key, Value, service_name
from headgate.resources.registry import LISTENER_SET, TRAFFIC_SPLIT
from headgate.resources.smi.split_fields import StickyBy

_NOT_VISIBLE = "no Service that this caller may call"


class ExplainInput(Value, frozen=True, kw_only=True):
    """A request to explain, its URL as the user wrote it, and its caller."""

    request: Request
    url: str
    caller: Caller


def explain(
    compiled: Compiled, snapshot: Snapshot, where: EntryPort | str, question: ExplainInput
) -> ExplanationStatus:
    """Explain a request that arrives at a port of a Gateway or a Service, or at the HTTP proxy for an authority."""
    request, caller = question.request, question.caller
    if caller.sidecar:
        compiled = structs.replace(compiled, mesh=compiled.mesh.seen_from(caller.home))
    routed = with_chosen_id(request) if compiled.mesh.tracing else request
    decision = decide(compiled.mesh, where, routed, caller.home)
    if decision.entry is None and caller.by_address and (message := _missing_port(decision)):
        failed = Portion(share=Fraction(1), status=UNAVAILABLE, reason=NOT_CONNECTED, message=message)
        decision = structs.replace(decision, shares=(failed,), sanitized=None)
    elif decision.entry is None and caller.by_address and caller.object and not decision.route:
        decision = structs.replace(decision, shares=(_outside(compiled.mesh, caller),), sanitized=None)
    elif decision.entry is None and caller.is_scoped and not decision.is_refused:
        refused = Portion(share=Fraction(1), status=FORBIDDEN, reason="NotVisible", message=_NOT_VISIBLE)
        decision = structs.replace(decision, shares=(refused,))
    seen = decision.sanitized.request if decision.sanitized else request
    arrivals = Arrivals(compiled, snapshot, caller)
    place, route = decision.entry, decision.route
    is_preflight = any(portion.reason == PREFLIGHT_REQUEST for portion in decision.shares)
    at_service = place if isinstance(place, PortRef) else None
    gateway = place if isinstance(place, GatewayPort) else None
    scheme = "https" if gateway and gateway.tls else "http"
    portions = [
        structs.replace(portion, message=f"to {redirect_location(seen, route, portion.redirect, scheme, place.port)}")
        if route and place and portion.redirect
        else portion
        for portion in decision.shares
    ]
    return ExplanationStatus(
        url=question.url,
        caller=ExplainedCaller(object=caller.object, identity=caller.identity, message=caller.note),
        service=at_service.service if at_service else "",
        gateway=gateway.gateway if gateway else "",
        port=place.port if place else 0,
        protocol=decision.protocol.value if place else "",
        protocol_message=_protocol_reason(compiled, snapshot, decision),
        host=decision.host,
        client_certificate_message=_client_certificate(gateway, decision),
        sanitizing=_sanitizing(compiled.mesh, request, decision),
        route=_explained(route) if route else None,
        backends=tuple(_backend(portion, route, seen, arrivals) for portion in portions),
        left_out=tuple(_left_out(compiled, decision)),
        mirrors=tuple(
            copy for mirror in decision.mirrors if mirror.numerator for copy in _copies(mirror, seen, arrivals)
        ),
        authorization_server=None if is_preflight else arrivals.at_authorization_server(route, seen),
        filter_messages=tuple(_cors_words(route) if is_preflight else _route_filters(route)) if route else (),
        location=redirect_location(seen, route, route.redirect, scheme, place.port)
        if route and route.redirect and place and not is_preflight
        else "",
        stickiness=None if is_preflight else _stickiness(decision),
        fallback_message=_fallback(decision),
        candidates=tuple(_candidates(compiled.mesh, decision, seen)),
        remarks=tuple(_remarks(compiled, snapshot, decision)),
        trace=_trace(compiled.mesh, request),
    )


def _outside(mesh: Mesh, caller: Caller) -> Portion:
    """Return what happens to a connection to the address of a host that is no Service."""
    no_service = (
        "no Service of the mesh has this host (write name.namespace, or its namespace with -n, if you mean one):"
    )
    if caller.sidecar and not mesh.passthrough:
        message = f"{no_service} the sidecar closes the connection, because headgate runs with --outbound refuse"
        return Portion(share=Fraction(1), status=UNAVAILABLE, reason=NOT_CONNECTED, message=message)
    passed = "the sidecar passes the connection" if caller.sidecar else "the connection goes"
    message = (
        f"{no_service} {passed} as it is to the address that the name has, if it has one; no route of the mesh applies,"
        " and access rules only if the address is that of a pod of the mesh, which can be explained by its address"
    )
    return Portion(share=Fraction(1), reason=PASSED_THROUGH, message=message)


def _missing_port(decision: Decision) -> str:
    """Return the message that the called Service lacks the port; otherwise an empty text."""
    return next((portion.message for portion in decision.shares if portion.reason == NO_SUCH_PORT), "")


def _trace(mesh: Mesh, request: Request) -> ClientTrace | None:
    context = trace_context(request.headers)
    return ClientTrace(id=context.trace, sampled=context.is_sampled, recorded=bool(mesh.tracing)) if context else None


def _sanitizing(mesh: Mesh, request: Request, decision: Decision) -> Sanitizing | None:
    if decision.sanitized is None:
        return None
    messages = list(decision.sanitized.changes)
    if decision.sanitized.status:
        messages.insert(0, decision.sanitized.reason)
    if mesh.tracing and any(name.lower() == REQUEST_ID for name, _ in request.headers):
        messages.append(f"{REQUEST_ID} is an ID that the proxy has chosen, until the route is selected: traces are on")
    return Sanitizing(status_code=decision.sanitized.status, messages=tuple(messages)) if messages else None


def _protocol_reason(compiled: Compiled, snapshot: Snapshot, decision: Decision) -> str:
    place = decision.entry
    if isinstance(place, GatewayPort):
        owner = compiled.report.listener_at(place.gateway, place.port, _listener(place, decision.host))
        is_set = owner and owner[0].kind == LISTENER_SET.kind
        of_set = f"listener {owner[1]} of {owner[0]}" if owner and is_set else "Gateway's listener"
        return f"because the {of_set} has this protocol"
    return choice_at(snapshot, place).why if place else ""


def _listener(port: GatewayPort, host: str) -> str:
    """Return the hostname of the listener that a request or connection for a host reaches."""
    if host in port.hosts:
        return port.hosts[host].listener
    return next((name.listener for name in port.server_names if name.host == host), "*")


def _client_certificate(gateway: GatewayPort | None, decision: Decision) -> str:
    """Return the certificate that the client presents to a Gateway whose proxy ends its TLS connection."""
    if gateway is None or gateway.client_certificates is None:
        return ""
    passed_on = any(entry.host == decision.host and not entry.terminated for entry in gateway.server_names)
    return "" if decision.protocol is Protocol.TLS and passed_on else str(gateway.client_certificates)


def _explained(route: Route) -> ExplainedRoute:
    matches = tuple(ChosenMatch(split=step.split, match=step.match) for step in route.split_matches)
    return ExplainedRoute(object=route.origin, name=route.name, matches=matches)


def _backend(portion: Portion, route: Route | None, request: Request, arrivals: Arrivals) -> ExplainedBackend:
    sent = backend_request(request, route, portion.filters) if route else request
    return ExplainedBackend(
        service=portion.ref.service if portion.ref else "",
        port=portion.ref.port if portion.ref else 0,
        share=exact_share(portion.share),
        ready_endpoints=portion.endpoints,
        status_code=portion.status,
        reason=portion.reason,
        message=portion.message,
        filter_messages=tuple(filter_words(portion.filters)),
        arrivals=arrivals.at(portion.ref, sent, portion.pod, portion.tls) if portion.ref and not portion.status else (),
    )


def _copies(mirror: Mirror, request: Request, arrivals: Arrivals) -> Iterator[Copy]:
    for target, share in copies(mirror):
        service, port, _ = target.ref
        arrived = arrivals.at(target.ref, request, tls=target.tls)
        yield Copy(service=service, port=port, share=exact_share(share), arrivals=arrived)


def _cors_words(route: Route) -> Iterator[str]:
    if route.cors:
        yield f"answer preflight requests (CORS): {cors.words(route.cors)}"


def _left_out(compiled: Compiled, decision: Decision) -> Iterator[LeftOutBackend]:
    """Yield the backends with a weight that get nothing on the port, if a split decides."""
    key = decision.route.origin if decision.route else None
    outcomes = (each for each in compiled.report.outcomes if (each.about, each.ref) == (key, decision.entry))
    for outcome in outcomes:
        for index, share in enumerate(outcome.shares):
            if share.weight and (reason := share.left_out):
                at = (outcome.about, reason, f"spec.backends[{index}].service")
                messages = [
                    finding.message
                    for finding in compiled.report.findings
                    if (finding.about, finding.reason, finding.field) == at
                ]
                where = (f"on port {outcome.ref.port}:", f"on port {outcome.ref.port};")
                of_port = [
                    text for text in messages if any(words in text for words in where)
                ]  # others are of other ports
                message = (of_port or messages or [""])[0]
                yield LeftOutBackend(service=share.service, weight=share.weight, reason=reason.value, message=message)


def _route_filters(route: Route) -> Iterator[str]:
    if route.redirect:
        yield redirect_words(route.redirect)
    yield from _cors_words(route)
    if route.external_auth:
        yield f"only if allowed by {auth_words(route.external_auth)}"
    if route.session:
        yield f"keep sessions at their endpoints {sessions.words(route.session)}"
    for target in route.split.targets:
        if target.session:
            yield f"keep sessions of {target.ref} at its endpoints {sessions.words(target.session)}"
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


def auth_words(auth: ExternalAuth) -> str:
    """Return an authorization server in words: `auth/server:9000 over HTTP, which gets the headers x-user`."""
    version = "HTTP/2" if auth.server_protocol is Protocol.HTTP2 else "HTTP"
    parts = (
        f"{auth.ref} over {'gRPC' if auth.protocol == 'GRPC' else version}",
        f"the path after /{auth.path}" if auth.path else "",
        f"with the headers {' '.join(auth.headers)}" if auth.headers else "",
        f"with up to {auth.body} bytes of the body" if auth.body else "",
        f"passing on its headers {' '.join(auth.response_headers)}" if auth.response_headers else "",
        edge_tls.backend_words(auth.tls) if auth.tls else "",
    )
    return ", ".join(part for part in parts if part)


def redirect_words(redirect: Redirect) -> str:
    """Return a redirect in words."""
    parts = (
        f"scheme {redirect.scheme}" if redirect.scheme else "",
        f"host {redirect.hostname}" if redirect.hostname else "",
        f"port {redirect.port}" if redirect.port else "",
        _path(redirect.path) if redirect.path else "",
    )
    return f"redirect with {redirect.status}: {', '.join(part for part in parts if part) or 'to the same address'}"


def _stickiness(decision: Decision) -> Stickiness | None:
    """Return how a sticky split keeps users, with the backend of the request's user if the request identifies one."""
    sticky = decision.route.split.sticky if decision.route else None
    if sticky is None:
        return None
    by = Stickiness(by=StickyBy(sticky.kind.capitalize()), name=sticky.name)
    if decision.slot is None:
        return by
    side = slot_range_at(sticky, decision.slot)
    if side.ref is None:
        return structs.replace(by, status_code=side.status)
    return structs.replace(by, service=side.ref.service, port=side.ref.port)


def _fallback(decision: Decision) -> str:
    """Return a text that says what happens when no backend can get traffic (D9 to D11)."""
    route = decision.route
    if route is None or route.redirect:
        return ""
    outcome = "503 from the proxy" if decision.protocol.is_http else "the connection is closed"
    if decision.protocol is Protocol.UDP:
        return "the share of a backend that is not usable: its datagrams are dropped"
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
    table = next((table for table in mesh.tables if table.ref == place), None)
    routes, hosts = table.routes if table else (), tuple[str, ...]()
    if of_names := place if isinstance(place, GatewayPort) else table:
        hosts = tuple(name.host for name in of_names.server_names)
    if isinstance(place, GatewayPort) and decision.protocol is not Protocol.TLS:
        hosts = tuple(sorted(place.hosts))
        routes = place.hosts[decision.host].routes if decision.host in place.hosts else ()
    requested = without_port(request.authority) if request.server_name is None else request.server_name
    yield from (_other_host(host, decision.host, requested.lower()) for host in hosts if host != decision.host)
    for candidate in decision.tried:
        route, unmet = _explained(candidate.route), candidate.unmet
        yield Tried(route=route, result="Failed" if unmet else "Matched", message=str(unmet or ""))
    for later in routes[len(decision.tried) :]:
        yield Tried(route=_explained(later), result="NotTried")


def _other_host(host: str, chosen: str, requested: str) -> Tried:
    fits = host_fits(host.lower(), requested)
    condition = f"host {chosen} is more specific" if fits else f"host is {requested!r}, wanted {host}"
    return Tried(host=host, result="Failed", message=condition)


def _remarks(compiled: Compiled, snapshot: Snapshot, decision: Decision) -> Iterator[Remark]:
    """Yield the findings about the request's route, the splits of its Service, and the policies of its pods."""
    about = {candidate.route.origin for candidate in decision.tried}
    about |= {step.split for candidate in decision.tried for step in candidate.route.split_matches}
    about |= set(_claimants(compiled, snapshot, decision))
    about |= set(_selecting(compiled, decision))
    about |= {portion.tls.origin for portion in decision.shares if portion.tls}
    passing = (compiled.report.passing_routes.get(key) for key in tuple(about) if key)
    about |= {key for route in passing if route for key in route.passed}
    for finding in compiled.report.findings:
        if finding.about in about:
            word, field = finding.reason.value, finding.field
            yield Remark(object=finding.about, reason=word, field=field, message=finding.message)


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
    for selected in compiled.report.selected:
        if not pods.isdisjoint((*selected.workloads, *selected.without_sidecar)):
            yield selected.about
