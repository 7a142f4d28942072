"""What a user can change so that a workload allows a denied request: in words, and as objects to create (D21)."""

import re
from collections.abc import Iterator, Mapping, Sequence

from headgate.compiler.authorization_policies import closing_policies, pods_of_policy
from headgate.compiler.references import ANY_METHOD
from headgate.compiler.report import pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.traffic_rules import (
    CalledPort,
    all_calls,
    allowing,
    allowing_match,
    group_of_request,
)
from headgate.compiler.workload_policy import closing_targets
from headgate.model.access import ConnectionRule, Grant
from headgate.model.ambiguous_paths import is_ambiguous
from headgate.model.authorization import connection_allowed, grants_allowing, port_of, request_unmet, seen_by_rules
from headgate.model.evaluate import RequestParts
from headgate.model.identities import parse_id
from headgate.model.requests import Match, Request
from headgate.model.routing import InboundPort, Mesh, Protocol, Workload
from headgate.resources.meta import Key, Object, Value
from headgate.resources.regexes import fault
from headgate.resources.registry import AUTHORIZATION_POLICY, ROUTE_GROUP, TRAFFIC_TARGET
from headgate.resources.smi.http_route_group import METHODS

_MOST_WORDS = 3
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


class Remedy(Value, frozen=True, kw_only=True):
    """A remedy in words, and the objects to create, in order.

    `objects` allow requests with exactly this method and path, `wide_objects` all requests of the caller to the port; connections
    have `objects` only. Both are empty where no TrafficTarget helps, or where it would close open pods.
    """

    message: str = ""
    objects: tuple[Object, ...] = ()
    wide_objects: tuple[Object, ...] = ()


class DeniedRequest(Value, frozen=True, kw_only=True):
    """A request that access rules deny: the SPIFFE ID of its caller, and the request as it arrives at a port of a workload."""

    identity: str
    workload: Workload
    port: int
    protocol: Protocol
    request: Request

    @property
    def seen(self) -> RequestParts:
        """The request in the form that the rules match."""
        return RequestParts(seen_by_rules(self.workload, self.request, self.identity))


def remedy(denied: DeniedRequest, snapshot: Snapshot, mesh: Mesh) -> Remedy:
    """Return what would allow a denied request; empty for a caller or a workload that is no ServiceAccount."""
    caller, server = parse_id(denied.identity), parse_id(denied.workload.identity)
    if caller is None or server is None:
        return Remedy()
    source = f"ServiceAccount {caller.namespace}/{caller.name}"
    excesses = _excesses(denied, snapshot, mesh)
    account = f"{server.namespace}/{server.name}"
    # A TrafficTarget closes all pods of its ServiceAccount: it is offered only where these are closed already.
    if not (mesh.scoped or any(account == closed for closed, _ in closing_targets(snapshot))):
        return Remedy(message=_without_target(denied, snapshot, mesh, source=source, excesses=excesses))
    where = CalledPort(server.namespace, server.name, denied.port, "HTTP" if denied.protocol.is_http else "TCP")
    wide = () if _is_named(denied) else all_calls(f"{caller.namespace}/{caller.name}", where, snapshot)
    group = _fitting_match(denied) if denied.protocol.is_http else ""
    objects = _objects(denied, f"{caller.namespace}/{caller.name}", where, snapshot, group=group)
    own = (
        f"create a TrafficTarget in namespace {server.namespace} with destination ServiceAccount {server.name}, "
        f"source {source} and {_rule_words(denied, group, has_objects=bool(objects))}"
    )
    message = _message(own, source, excesses)
    return (
        Remedy(message=message, objects=objects, wide_objects=wide)
        if denied.protocol.is_http
        else Remedy(message=message, objects=wide)
    )


def _without_target(
    denied: DeniedRequest, snapshot: Snapshot, mesh: Mesh, *, source: str, excesses: Mapping[str, Sequence[str]]
) -> str:
    """Return the remedy in words where only XAuthorizationPolicies close the workload, and what a TrafficTarget would close."""
    opened = sorted(
        workload.name
        for workload in mesh.workloads
        if workload.identity == denied.workload.identity and not workload.access.closed
    )
    closing = f"; a TrafficTarget would also close {pod_list(opened)}" if opened else ""
    if excesses:
        fitting = {place: excess for place, excess in excesses.items() if not excess}
        places = (
            f"{place}, which also allows {_listed(excess)}" if excess else place
            for place, excess in (fitting or excesses).items()
        )
        return f"add {source} to {'; or to '.join(places)}{closing}"
    calls = "requests" if denied.protocol.is_http else "connections"
    additions = [
        f"{policy}, which then allows all its {_listed([f'{calls} to the port', *_further_pods(_covered(policy, denied, snapshot, mesh), denied)])}"
        for policy in closing_policies(snapshot, denied.workload.name)
    ]
    return f"add a rule for {source} and port {denied.port} to {'; or to '.join(additions)}{closing}"


def _objects(
    denied: DeniedRequest, caller: str, where: CalledPort, snapshot: Snapshot, *, group: str
) -> tuple[Object, ...]:
    """Return the objects that allow requests with the method and the path of a denied one; none if no rule can name these."""
    if not denied.protocol.is_http:
        return ()
    if group:
        return allowing_match(caller, where, snapshot, *group.split("/", 1))
    method, path = denied.seen.request.method, denied.seen.path
    pattern = _only(path)
    if method not in METHODS or method == ANY_METHOD or is_ambiguous(path) or fault(pattern):
        return ()
    own_group = group_of_request(where.namespace, method, pattern)
    return allowing(caller, where, snapshot, own_group, matches=[own_group["spec"]["matches"][0]["name"]])


def _only(path: str) -> str:
    """Return the `pathRegex` that fits only this path, as users write it: `re.escape` would escape `-` too."""
    return _SPECIAL.sub(r"\\\g<0>", path) + "$"


def _fitting_match(denied: DeniedRequest) -> str:
    """Return a match (`group/match`) of a TrafficTarget of the workload that is only for the denied request's method and path."""
    parts = denied.seen
    for grant in denied.workload.access.grants:
        for rule in grant.requests if grant.origin.kind == TRAFFIC_TARGET.kind else ():
            if _is_narrow(rule.match, parts) and not request_unmet(rule, parts):
                return rule.name
    return ""


def _is_narrow(match: Match, parts: RequestParts) -> bool:
    """Return whether a match allows no method and no path other than those of a request."""
    only = _only(parts.path)
    return (
        match.methods == (parts.request.method,) and match.path is not None and match.path.written in {only, f"^{only}"}
    )


def _excesses(denied: DeniedRequest, snapshot: Snapshot, mesh: Mesh) -> Mapping[str, Sequence[str]]:
    """Return the places that the caller could be added to, each with what else the caller may call then."""
    excesses: dict[str, list[str]] = {}
    for grant in grants_allowing(denied.workload, denied.port, protocol=denied.protocol, request=denied.request):
        place = _place(grant)
        grants = [other for other in denied.workload.access.grants if _place(other) == place]
        covered = _covered(grant.origin, denied, snapshot, mesh)
        pods = _further_pods(covered, denied) if grant.origin.kind == AUTHORIZATION_POLICY.kind else ()
        excess = [*_further_ports(grants, covered, denied), *pods, *_excess(grant, denied)]
        excesses[place] = list(dict.fromkeys([*excesses.get(place, ()), *excess]))
    return excesses


def _covered(origin: Key, denied: DeniedRequest, snapshot: Snapshot, mesh: Mesh) -> Sequence[Workload]:
    """Return the workloads to which a TrafficTarget or XAuthorizationPolicy of the denied request's workload applies."""
    if origin.kind != AUTHORIZATION_POLICY.kind:
        return [workload for workload in mesh.workloads if workload.identity == denied.workload.identity]
    selected = set(pods_of_policy(snapshot, origin))
    return [workload for workload in mesh.workloads if workload.name in selected]


def _further_ports(grants: Sequence[Grant], covered: Sequence[Workload], denied: DeniedRequest) -> Iterator[str]:
    """Yield the other ports at which grants of one place allow calls in the protocol of the denied request.

    The grants are for all pods of their object, which can have other ports than the called one.
    """
    others = {
        inbound.port: inbound for workload in covered for inbound in workload.ports if inbound.port != denied.port
    }
    ports = [
        number
        for number, inbound in sorted(others.items())
        if any(_allows_at(grant, inbound, denied.protocol) for grant in grants)
    ]
    if ports:
        yield f"{'requests' if denied.protocol.is_http else 'connections'} to port {' or '.join(map(str, ports))}"


def _allows_at(grant: Grant, inbound: InboundPort, protocol: Protocol) -> bool:
    """Return whether a grant has a rule for calls to a port that are HTTP requests, or not, as `protocol` is."""
    if grant.port not in {0, inbound.port} or all(
        spoken.protocol.is_http != protocol.is_http for spoken in inbound.protocols
    ):
        return False
    return bool(grant.requests) if protocol.is_http else any(connection_allowed(r, inbound) for r in grant.connections)


def _further_pods(covered: Sequence[Workload], denied: DeniedRequest) -> Iterator[str]:
    """Yield the pods that an XAuthorizationPolicy selects besides those of the called pod's Services."""
    services = _services(denied.workload)
    pods = sorted(
        workload.name
        for workload in covered
        if workload.ports != denied.workload.ports  # replicas have equal ports, and comparing them is faster
        and services.isdisjoint(_services(workload))
    )
    if pods:
        yield f"calls to {pod_list(pods)}"


def _services(workload: Workload) -> frozenset[str]:
    """Return the Services (`namespace/name`) that lead to a workload."""
    return frozenset(
        ref.service for inbound in workload.ports for spoken in inbound.protocols for ref in spoken.services
    )


def _excess(grant: Grant, denied: DeniedRequest) -> Iterator[str]:
    inbound, parts = port_of(denied.workload, denied.port), denied.seen
    for request_rule in grant.requests:
        fits = denied.protocol.is_http and not request_unmet(request_rule, parts)
        if not (fits and _is_narrow(request_rule.match, parts)):
            yield match_words(request_rule.match)
    for rule in grant.connections:
        fits = not denied.protocol.is_http and inbound is not None and connection_allowed(rule, inbound)
        if not fits:
            yield _connection_words(rule)


def match_words(match: Match) -> str:
    """Return the requests of a match in words: `GET /books$`, `GET paths that begin with /api`, `all requests`."""
    path = match.path and _path_words(match.path.written)
    headers = f" with header {', '.join(header.name for header in match.headers)}" if match.headers else ""
    if not match.methods:
        return f"all requests to {path}{headers}" if path else f"all requests{headers}"
    return f"{' or '.join(match.methods)} {path or 'with any path'}{headers}"


def _path_words(pattern: str) -> str:
    if pattern.endswith("$") and not pattern.endswith(r"\$"):
        return pattern
    return f"paths that begin with {'a match of ' if _SPECIAL.search(pattern) else ''}{pattern}"


def _connection_words(rule: ConnectionRule) -> str:
    return f"connections to port {' or '.join(map(str, rule.ports))}" if rule.ports else "all connections"


def _message(own: str, source: str, excesses: Mapping[str, Sequence[str]]) -> str:
    """Return the remedy in words. A rule that allows more than the denied request comes last, with what it allows."""
    if fitting := [place for place, excess in excesses.items() if not excess]:
        return f"add {source} to {' or '.join(fitting)}, or create a TrafficTarget for it"
    others = [f"{place}, which also allows {_listed(excess)}" for place, excess in excesses.items()]
    return f"{own}; or add the ServiceAccount to {'; or to '.join(others)}" if others else own


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _MOST_WORDS
    shown = [*words[:_MOST_WORDS], *([f"{more} more"] if more > 0 else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _rule_words(denied: DeniedRequest, group: str, *, has_objects: bool) -> str:
    if group:
        name, match = group.split("/", 1)
        return f"match {match} of {ROUTE_GROUP.kind} {name}"
    if has_objects:
        return f"an {ROUTE_GROUP.kind} for {denied.seen.request.method} {denied.seen.path}"
    return "a rule that matches the request"


def _is_named(denied: DeniedRequest) -> bool:
    """Return whether a rule at the port has the caller itself as a source, not only as one of many.

    Then the rule allows a part of its calls, and objects for all calls would allow the others too.
    """
    grants = (grant for grant in denied.workload.access.grants if grant.port in (0, denied.port))
    return any(denied.identity in grant.sources for grant in grants)


def _place(grant: Grant) -> str:
    """Return the field that has the sources of a grant, with its object."""
    is_policy = grant.origin.kind == AUTHORIZATION_POLICY.kind
    return f"spec.{f'{grant.requests[0].name}.' if is_policy else ''}sources of {grant.origin}"
