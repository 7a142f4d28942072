"""A plan: what a change of objects does to requests, to access and to mutual TLS, in words and with examples."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.references import group_key
from headgate.kinds import SPECS
from headgate.matching.conditions import UNAMBIGUOUS, Setting
from headgate.matching.undecided import Work
from headgate.model.requests import Request
from headgate.model.routing import PortRef, Route, TlsMode
from headgate.plan import words
from headgate.plan.access import AccessChange, access_changes
from headgate.plan.departures import Departure, departures, without_sidecar
from headgate.plan.moved_requests import MovedRequests
from headgate.plan.traffic import RequestClass, request_classes
from headgate.plan.world import Origin, World
from headgate.resources.gateway_api.proxies import SERVICE_GATEWAY
from headgate.resources.meta import Key, Value
from headgate.resources.registry import TLS_CONFIG, TRAFFIC_SPLIT
from headgate.shared_map import replaced

UNREACHABLE = frozenset((Reason.SHADOWED, Reason.NEVER_MATCHES, Reason.NO_EFFECT))
_OF_BACKENDS = frozenset(("Service", "EndpointSlice", "Deployment", "ReplicaSet", "Pod"))


class Outcome(Value, frozen=True, kw_only=True):
    """The treatment of requests in one world: the object that defines their route, and their receivers by share."""

    route: str
    receivers: str


class Rate(Value, frozen=True, kw_only=True):
    """The requests per second to a Service. `moved` of them go to another receiver; None if only a part is affected."""

    service: str
    rps: float
    moved: float | None = None


class RequestChange(Value, frozen=True, kw_only=True):
    """Classes of requests to an entry whose treatment differs in the same way.

    `service` is the Service of the entry, empty for a Gateway; `whole` means that all its requests are affected.
    `certain` is False if it is not decided whether there are such requests. `share` is the largest share that moves.
    `example` is a request, and `command` explains it.
    """

    entry: str
    service: str = ""
    whole: bool = False
    requests: tuple[str, ...]
    before: Outcome
    after: Outcome
    changes: tuple[str, ...]
    share: float
    example: str
    command: str
    certain: bool = True
    causes: tuple[Origin, ...] = ()
    rate: Rate | None = None


class AccessRow(Value, frozen=True, kw_only=True):
    """Requests that callers may send to pods in one world only.

    `moved` says that the requests move to pods which refuse them, and `destination` is the entry then. It is empty if access
    rules change.
    """

    kind: str
    callers: str
    destination: str
    pods: tuple[str, ...]
    port: int
    requests: str
    rule: str = ""
    moved: str = ""
    example: str
    command: str
    certain: bool = True
    causes: tuple[Origin, ...] = ()


class TlsChange(Value, frozen=True, kw_only=True):
    """Pods whose TLS mode changes."""

    pods: tuple[str, ...]
    before: str
    after: str
    causes: tuple[Origin, ...] = ()


class GatewayChange(Value, frozen=True, kw_only=True):
    """A Service whose clients without a sidecar get another proxy of its own; `before` and `after` are empty without one."""

    service: str
    before: str
    after: str
    causes: tuple[Origin, ...] = ()


class NewFinding(Value, frozen=True, kw_only=True):
    """A finding that only the new world has. It is `unreachable` if it is about a rule that no request reaches."""

    severity: str
    reason: str
    unreachable: bool
    message: str
    causes: tuple[Origin, ...]


class Plan(Value, frozen=True, kw_only=True):
    """All differences of two worlds, in the order in which users should read them."""

    unreachable: tuple[NewFinding, ...] = ()
    lost: tuple[AccessRow, ...] = ()
    gained: tuple[AccessRow, ...] = ()
    requests: tuple[RequestChange, ...] = ()
    tls: tuple[TlsChange, ...] = ()
    gateways: tuple[GatewayChange, ...] = ()
    departures: tuple[Departure, ...] = ()
    findings: tuple[NewFinding, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the two worlds treat all requests alike."""
        return not any(getattr(self, name) for name in self.__struct_fields__)


def plan(world: World) -> Plan:
    """Compare two worlds."""
    before, after = world.before.mesh, world.after.mesh
    sides = world.sides
    bare = tuple(map(without_sidecar, sides)) if sides else (frozenset[str](), frozenset[str]())
    access = access_rows(world, _of_guarded(access_changes(before, after), *bare))
    classes = tuple(request_classes(before, after))
    new = list(_new_findings(world))
    return Plan(
        unreachable=tuple(item for item in new if item.unreachable),
        lost=(*(item for item in access if item.kind == "lost"), *rows_of_moved_requests(world, classes)),
        gained=tuple(item for item in access if item.kind == "gained"),
        requests=tuple(request_changes(world, classes)),
        tls=tuple(tls_changes(world)),
        gateways=tuple(gateway_changes(world)),
        departures=tuple(departures(*sides)) if sides else (),
        findings=tuple(item for item in new if not item.unreachable),
    )


def _of_guarded(
    changes: Iterable[AccessChange], before: Collection[str], after: Collection[str]
) -> Iterator[AccessChange]:
    """Yield the changes without the pods that have no sidecar `after`, and without what pods gain that had none `before`.

    A pod without a sidecar allows all requests.
    """
    for change in changes:
        bare = after if change.kind == "lost" else (*before, *after)
        guarded = tuple(name for name in change.workloads if name not in bare)
        if guarded:
            yield structs.replace(change, workloads=guarded)


def request_changes(world: World, classes: Iterable[RequestClass]) -> Iterator[RequestChange]:
    """Yield the changes of requests; classes with the same change are in one item."""
    groups: dict[tuple[object, ...], list[RequestClass]] = {}
    for item in classes:
        causes = tuple(_route_causes(item, world))
        key = item.entry.kind, item.entry.name, item.entry.port, item.before, item.after, causes, item.example is None
        groups.setdefault(key, []).append(item)
    secure = {(port.gateway, port.port) for port in world.after.mesh.gateways if port.tls}
    for items in groups.values():
        yield _request_change(items, world, secure=(items[0].entry.name, items[0].entry.port) in secure)


def _request_change(items: Sequence[RequestClass], world: World, *, secure: bool) -> RequestChange:
    first = items[0]
    several = len({item.entry for item in items}) > 1
    moved = words.moves(first.before, first.after)
    titles = [_requests(item, with_host=several) for item in items]
    example = first.example
    return RequestChange(
        entry=str(first.entry) if not several else f"{first.entry.kind} {first.entry.name}:{first.entry.port}",
        service=first.entry.name if first.entry.kind == "Service" else "",
        whole=not first.match and not first.is_rest,
        requests=tuple(dict.fromkeys(titles)),
        before=Outcome(route=_route(first.old_route), receivers=words.receivers_words(first.before)),
        after=Outcome(route=_route(first.new_route), receivers=words.receivers_words(first.after)),
        changes=tuple(words.changes(first.before, first.after)) or ("other reasons for the same answer",),
        share=round(float(sum(share for share, _, _ in moved)), 6),
        example=words.request_text(example) if example else "",
        command=words.example_command(first.entry, example, secure=secure and first.entry.kind == "Gateway")
        if example
        else "",
        certain=example is not None,
        causes=tuple(_route_causes(first, world)),
    )


def _requests(item: RequestClass, *, with_host: bool) -> str:
    text = words.OTHER_REQUESTS if item.is_rest else words.requests_words(item.match)
    host = f"host {item.entry.host}" if with_host and item.entry.host != "*" else ""
    if not host:
        return text
    return host if text == words.ALL_REQUESTS else f"{host}, {text}"


def _route(route: Route | None) -> str:
    if route is None:
        return "no route"
    if route.origin is None:
        return "the Service itself"
    return f"{route.origin}" + (f", {route.name}" if route.name else "")


def _route_causes(item: RequestClass, world: World) -> Iterator[Origin]:
    """Yield the changed objects that define the routes of a class; without any, those of their backends."""
    fields: dict[Key, str] = {}
    for route in (item.new_route, item.old_route):
        for key, field in _defining(route) if route else ():
            fields.setdefault(key, field)
    found = [world.cause(key, field) for key, field in fields.items() if key in world.changed]
    yield from found or _backend_causes(item, world)


def _defining(route: Route) -> Iterator[tuple[Key, str]]:
    if route.origin is None:
        return
    is_split = route.origin.kind == TRAFFIC_SPLIT.kind
    yield route.origin, "spec.backends" if is_split else f"spec.rules[{route.name}]"
    group, _, match = route.name.partition("/")
    if is_split and match:
        yield group_key(route.origin.namespace, group), "spec.matches"
    for step in route.split_matches:
        yield step.split, "spec.backends"


def _backend_causes(item: RequestClass, world: World) -> Iterator[Origin]:
    services = {
        receiver.ref.service
        for treatment in (item.before, item.after)
        for receiver in treatment.receivers
        if receiver.ref
    } | {item.entry.name}
    names = {key: f"{key.namespace}/{key.name}" for key in sorted(world.changed) if key.kind in _OF_BACKENDS}
    yield from dict.fromkeys(
        world.cause(key, "spec")
        for key, name in names.items()
        if any(name == service or name.startswith(f"{service}-") for service in services)
    )


def access_rows(world: World, changes: Iterable[AccessChange]) -> list[AccessRow]:
    """Return the changes of access; pods with the same change are in one row."""
    found: dict[AccessRow, list[str]] = {}
    for change in changes:
        row = _access_row(change, world)
        found.setdefault(structs.replace(row, pods=()), []).extend(row.pods)
    return [structs.replace(row, pods=tuple(sorted(set(pods)))) for row, pods in found.items()]


def _access_row(change: AccessChange, world: World) -> AccessRow:
    example = sent_to(change.called, change.example) if change.example else None
    command = words.service_command(change.called, example, change.sources[0]) if change.called and example else ""
    return AccessRow(
        kind=change.kind,
        callers=words.callers_words(change.sources),
        destination=words.callers_words((change.destination,)),
        pods=change.workloads,
        port=change.port,
        requests=words.requests_words(change.match) if change.is_http else "connections",
        rule=", ".join(part for part in (str(change.origin or ""), change.rule) if part) or "the pods are open",
        example=words.request_text(example, is_http=change.is_http) if example else "",
        command=command,
        certain=example is not None,
        causes=tuple(world.cause(key, field) for key, field in _deciding(change) if key in world.changed),
    )


def rows_of_moved_requests(
    world: World, classes: Iterable[RequestClass], work: Work | None = None
) -> Iterator[AccessRow]:
    """Yield a row for requests that move to a backend whose pods refuse them, while a former backend allows them."""
    moved = MovedRequests(world.before.mesh, world.after.mesh, work)
    for item in classes:
        for found in moved.refused(item):
            yield AccessRow(
                kind="lost",
                callers=words.callers_words(found.callers),
                destination=str(item.entry),
                pods=(found.workload.name,),
                port=found.ref.port,
                requests=words.requests_words(tuple(part for part in found.match if part != UNAMBIGUOUS)),
                moved=f"requests move to {found.ref}, whose pods refuse them",
                example=words.request_text(found.example) if found.example else "",
                command=words.example_command(item.entry, found.example, found.callers[0]) if found.example else "",
                certain=found.example is not None,
                causes=tuple(_route_causes(item, world)),
            )


def _deciding(change: AccessChange) -> Iterator[tuple[Key, str]]:
    """Yield the objects that may cause a change of access: access rules, and the routes that they name."""
    for key in dict.fromkeys(key for key in (change.origin, *change.closed_by) if key):
        yield key, "spec"
    if change.origin:
        group = change.rule.partition("/")[0]
        yield group_key(change.origin.namespace, group), "spec.matches"
        yield Key(SPECS, "TCPRoute", change.origin.namespace, group), "spec.matches"


def sent_to(called: PortRef | None, request: Request) -> Request:
    """Return a request with the host of a Service, unless a condition on the host chose another one."""
    if called is None or request.authority not in Setting().authorities:
        return request
    namespace, name = called.service.split("/")
    return structs.replace(request, authority=f"{name}.{namespace}:{called.port}")


def tls_changes(world: World) -> Iterator[TlsChange]:
    """Yield the workloads that get another TLS mode."""
    old = {item.name: item.target_tls_mode for item in world.before.mesh.workloads}
    found: dict[tuple[TlsMode, TlsMode], list[str]] = {}
    for item in world.after.mesh.workloads:
        mode = old.get(item.name, item.target_tls_mode)
        if mode is not item.target_tls_mode:
            found.setdefault((mode, item.target_tls_mode), []).append(item.name)
    causes = tuple(world.cause(key, "spec") for key in sorted(world.changed) if key.kind == TLS_CONFIG.kind)
    for (one, other), pods in found.items():
        yield TlsChange(pods=tuple(sorted(pods)), before=one.value, after=other.value, causes=causes)


def gateway_changes(world: World) -> Iterator[GatewayChange]:
    """Yield the Services that get, change or lose a proxy of their own for clients without a sidecar."""
    old, new = (
        {item.name: item for item in side.report.service_gateways if item.serves}
        for side in (world.before, world.after)
    )
    for name in sorted(old.keys() | new.keys()):
        proxies = tuple(side[name].proxy if name in side else "" for side in (old, new))
        if proxies[0] != proxies[1]:
            about = (new.get(name) or old[name]).about
            causes = (world.cause(about, f"metadata.annotations.{SERVICE_GATEWAY}"),)
            yield GatewayChange(service=name, before=proxies[0], after=proxies[1], causes=causes)


def _new_findings(world: World) -> Iterator[NewFinding]:
    before, after = world.before.report.findings_of, world.after.report.findings_of
    changed, _ = replaced(before, after)
    for about in sorted(changed if world.known is None else changed.keys() & world.known):
        old = {(item.reason, item.field) for item in before.get(about, ())}
        for item in after[about]:
            if (item.reason, item.field) not in old:
                yield NewFinding(
                    severity=item.reason.severity.value,
                    reason=item.reason.value,
                    unreachable=item.reason in UNREACHABLE,
                    message=item.message,
                    causes=(Origin(object=str(item.about), field=item.field),),
                )
