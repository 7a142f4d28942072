"""Compile what Services and routes say about failures of endpoints: ejection, retries, timeouts and limits.

All annotations have one grammar: pairs `NAME=VALUE` with spaces between them, or the word `off`. An annotation with a mistake
has no effect, and a finding says how to correct it.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar

from msgspec import Meta, structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.service_sessions import callees, first_of, split_sessions
from headgate.compiler.snapshot import Snapshot
from headgate.durations import milliseconds
from headgate.errors import DecodeError
from headgate.model.host_names import by_host
from headgate.model.requests import Timeouts
from headgate.model.resilience import DEFAULT, RETRIES_MS, Ejection, Limits, Resilience, Retry, ServiceTimeouts
from headgate.model.routing import (
    HostRoutes,
    Mesh,
    PortProtocol,
    PortRef,
    Route,
    RouteTable,
    ServerName,
    Target,
    Workload,
)
from headgate.model.sessions import PersistentSession
from headgate.resources.core.service import Service
from headgate.resources.decode import read
from headgate.resources.meta import Input, Key
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.resilience import EJECTION, LIMITS, RETRY, TIMEOUT

R = TypeVar("R", HostRoutes, RouteTable)
OFF = "off"
CONDITIONS = ("5xx", "gateway-error", "reset")
GRPC = ("cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable")
MOST_RETRIES = 10
_LONGEST_MS = 24 * 60 * 60 * 1000
_MOST = 1_000_000
_ERRORS = range(400, 600)


class Mistake(Exception):
    """A mistake in an annotation; its text says how to correct it."""


def _duration(text: str) -> int:
    try:
        duration = milliseconds(text)
    except ValueError as error:
        raise Mistake(str(error)) from None
    if not 1 <= duration <= _LONGEST_MS:
        raise Mistake(f"{text!r} must be from 1ms to 24h")
    return duration


def _whole(lowest: int, highest: int, unit: str = "") -> Callable[[str], int]:
    def read(text: str) -> int:
        number = text.removesuffix(unit)
        if not (number.isascii() and number.isdigit() and lowest <= int(number[:9]) <= highest and len(number) < 9):
            raise Mistake(f"{text!r} must be a whole number from {lowest}{unit} to {highest}{unit}")
        return int(number)

    return read


class Repeated(NamedTuple):
    """What a retry policy repeats: statuses, names of gRPC statuses, and conditions."""

    codes: tuple[int, ...]
    grpc: tuple[str, ...]
    conditions: tuple[str, ...]


def _repeated(text: str) -> Repeated:
    words = text.split(",")
    for word in words:
        if not (word in (*CONDITIONS, *GRPC) or (word.isdigit() and len(word) == 3 and int(word) in _ERRORS)):
            names = ", ".join((*CONDITIONS, *GRPC))
            raise Mistake(f"{word!r} must be a status from 400 to 599, or one of {names}")
    conditions = [word for word in CONDITIONS if word in words or word == "reset"]
    return Repeated(
        tuple(sorted({int(word) for word in words if word.isdigit()})),
        tuple(word for word in GRPC if word in words),
        tuple(conditions),
    )


_COUNT = _whole(0, _MOST)
_PERCENT = _whole(1, 99, "%")
_READERS: Mapping[str, Mapping[str, tuple[str, Callable[[str], Any]]]] = MappingProxyType(
    {
        EJECTION: {
            "gateway-errors": ("gateway_errors", _COUNT),
            "local-errors": ("local_errors", _COUNT),
            "errors": ("errors", _COUNT),
            "time": ("time", _duration),
            "max-time": ("max_time", _duration),
            "max-percent": ("max_percent", _PERCENT),
        },
        RETRY: {
            "retries": ("retries", _whole(1, MOST_RETRIES)),
            "on": ("on", _repeated),
            "backoff": ("backoff", _duration),
            "max-backoff": ("max_backoff", _duration),
            "budget": ("budget", _whole(1, 100, "%")),
        },
        TIMEOUT: {
            "request": ("request", _duration),
            "attempt": ("attempt", _duration),
            "connect": ("connect", _duration),
            "idle": ("idle", _duration),
        },
        LIMITS: {name: (name, _whole(1, _MOST)) for name in ("connections", "pending", "requests", "retries")},
    }
)
"""For each annotation and name of a pair: the field, and the function that reads the value. It raises Mistake."""
_EXAMPLES = {
    EJECTION: "gateway-errors=5 time=30s",
    RETRY: "retries=3 on=503,reset",
    TIMEOUT: "request=10s connect=2s",
    LIMITS: "requests=100",
}
_MAY_BE_OFF = (EJECTION, RETRY)


class ServiceResilience(NamedTuple):
    """The settings of the Services (`namespace/name`) that have some, and the findings about annotations."""

    settings: Mapping[str, Resilience]
    findings: tuple[Finding, ...]


def of_services(snapshot: Snapshot) -> ServiceResilience:
    """Return the settings of all Services."""
    settings: dict[str, Resilience] = {}
    findings: list[Finding] = []
    for name, (key, service) in snapshot.services.items():
        if not service.metadata.annotations.keys().isdisjoint(_READERS):
            own, mistakes = of_service(key, service)
            settings |= {name: own} if own != DEFAULT else {}
            findings += mistakes
    return ServiceResilience(settings, tuple(findings))


def of_service(key: Key, service: Service) -> tuple[Resilience, list[Finding]]:
    """Return the settings of a Service, and the findings about its annotations."""
    findings: list[Finding] = []

    def read(name: str) -> dict[str, Any] | None:
        text = service.metadata.annotations.get(name)
        try:
            return {} if text is None else _fields(name, text)
        except Mistake as mistake:
            message = f"{mistake}; until then the annotation has no effect"
            findings.append(Finding(key, Reason.FIELD_IGNORED, f"metadata.annotations.{name}", message))
            return {}

    ejection, retry, timeout, limits = (read(name) for name in (EJECTION, RETRY, TIMEOUT, LIMITS))
    settings = Resilience(
        ejection=None if ejection is None else Ejection(**ejection),
        retry=Retry(conditions=()) if retry is None else Retry(**retry) if retry else None,
        timeouts=ServiceTimeouts(**timeout or {}),
        limits=Limits(**limits or {}),
    )
    if too_long := _too_long(key, settings):
        findings.append(too_long)
        settings = structs.replace(settings, timeouts=structs.replace(settings.timeouts, connect=0))
    return settings, findings


def _fields(name: str, text: str) -> dict[str, Any] | None:
    """Return the fields that an annotation sets; None if it is `off`. Raises Mistake."""
    if text.strip() == OFF and name in _MAY_BE_OFF:
        return None
    fields: dict[str, Any] = {}
    readers = _READERS[name]
    for pair in text.split():
        word, equals, value = pair.partition("=")
        if not equals or word not in readers:
            off = f" or {OFF}" if name in _MAY_BE_OFF else ""
            raise Mistake(f"{pair!r} must be NAME=VALUE with one of {', '.join(readers)}: write {_EXAMPLES[name]}{off}")
        field, reader = readers[word]
        if field in fields:
            raise Mistake(f"{word} is written twice; remove one of the two")
        try:
            fields[field] = reader(value)
        except Mistake as mistake:
            raise Mistake(f"{word}: {mistake}") from None
    if not fields:
        raise Mistake(f"is empty: write {_EXAMPLES[name]}, or remove the annotation")
    if isinstance(on := fields.pop("on", None), Repeated):
        fields |= on._asdict()
    return fields | _consistent(name, fields)


def _consistent(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return upper bounds that grow with what the user wrote. Raises Mistake."""
    for less, more in (("time", "max_time"), ("backoff", "max_backoff")):
        if less in fields and more in fields and fields[more] < fields[less]:
            raise Mistake(f"{more.replace('_', '-')} must be at least {less}")
    if name == EJECTION and "max_time" not in fields:
        return {"max_time": max(Ejection().max_time, fields.get("time", 0))}
    if name == RETRY and "max_backoff" not in fields:
        return {"max_backoff": 10 * fields.get("backoff", Retry().backoff)}
    return {}


def _too_long(key: Key, settings: Resilience) -> Finding | None:
    retries = (settings.retry or Retry()).retries
    if settings.timeouts.connect * retries <= RETRIES_MS:
        return None
    message = (
        f"connect: {settings.timeouts.connect}ms is too long for {retries} retries, which take at most {RETRIES_MS // 1000} s; write at "
        f"most {RETRIES_MS // retries}ms, which is used until then"
    )
    return Finding(key, Reason.FIELD_IGNORED, f"metadata.annotations.{TIMEOUT}", message)


class RuleRetry(Input, frozen=True, kw_only=True):
    """The `retry` of a rule without mistakes."""

    attempts: Annotated[int, Meta(ge=0)] | None = None
    codes: tuple[Annotated[int, Meta(ge=_ERRORS.start, lt=_ERRORS.stop)], ...] = ()
    backoff: str = ""


def of_rule(written: object) -> Retry | None:
    """Return the retries of a rule (GEP-1731): `codes` of any method, and connections that end without a response.

    An object that was stored before the schema may have any content: None if it has a mistake.
    """
    if not isinstance(written, Mapping):
        return None
    try:
        policy = read(written, RuleRetry)
        backoff = _duration(policy.backoff) if policy.backoff else Retry().backoff
    except (DecodeError, Mistake):
        return None
    if policy.attempts == 0:
        return Retry(conditions=())
    return Retry(
        retries=Retry().retries if policy.attempts is None else min(MOST_RETRIES, policy.attempts),
        codes=tuple(sorted(set(policy.codes))),
        backoff=backoff,
        max_backoff=10 * backoff,
    )


# --- in the mesh


class SettingsByService(NamedTuple):
    """The settings of Services and their sessions, by `namespace/name`: those that have some."""

    resilience: Mapping[str, Resilience]
    sessions: Mapping[str, PersistentSession]


def with_resilience(mesh: Mesh, settings: SettingsByService) -> Mesh:
    """Return the mesh with the settings of Services."""
    if not (settings.resilience or settings.sessions):
        return mesh
    return structs.replace(
        mesh,
        workloads=tuple(_workload(workload, settings.resilience) for workload in mesh.workloads),
        tables=tuple(_table(table, settings) for table in mesh.tables),
        consumers=tuple(
            structs.replace(consumer, table=_table(consumer.table, settings)) for consumer in mesh.consumers
        ),
        gateways=tuple(
            structs.replace(
                port,
                hosts=by_host(*(_with_routes(host, settings, None) for host in port.hosts.values())),
                connections=_connections(port.connections, settings) if port.connections else None,
                server_names=_server_names(port.server_names, settings),
            )
            for port in mesh.gateways
        ),
    )


def _table(table: RouteTable, settings: SettingsByService) -> RouteTable:
    own = settings if table.protocol.is_http else settings._replace(sessions={})
    routed = _with_routes(table, own, table.ref)
    if table.server_names:
        routed = structs.replace(routed, server_names=_server_names(table.server_names, settings))
    resilience = settings.resilience.get(table.ref.service)
    return structs.replace(routed, resilience=resilience) if resilience else routed


def _server_names(names: Iterable[ServerName], settings: SettingsByService) -> tuple[ServerName, ...]:
    return tuple(
        structs.replace(name, route=_connections(name.route, settings)) if name.route else name for name in names
    )


def _with_routes(routed: R, settings: SettingsByService, ref: PortRef | None) -> R:
    routes = tuple(_route(route, settings, ref.service if ref else "") for route in routed.routes)
    return routed if routes == routed.routes else structs.replace(routed, routes=routes)


def _connections(route: Route, settings: SettingsByService) -> Route:
    return _route(route, settings._replace(sessions={}), "")


def _route(route: Route, settings: SettingsByService, called: str) -> Route:
    """Return a route with the settings of the Service that its requests call.

    That is the Service `called`, unless the route belongs to a rule: a rule names Services itself. If several Services of a
    rule have different retries or timeouts, the rule has none of them. The sessions of a rule take precedence over those of
    Services. A backend without a weight is only for the sessions that it has.
    """
    named = route.origin is not None and route.origin.kind != TRAFFIC_SPLIT.kind
    called = "" if named else called
    own = split_sessions(route.split, {} if route.session else settings.sessions, called).by_target
    targets = tuple(
        _target(target, session, settings.resilience, called)
        for target, session in zip(route.split.targets, own, strict=True)
    )
    session = route.session
    if len({target.session for target in targets}) == 1:  # all backends are endpoints of one session
        session = session or targets[0].session
        targets = tuple(structs.replace(target, session=None) if target.session else target for target in targets)
    if session and session.kind == "header" and len({target.resilience for target in targets}) > 1:
        session = None  # backends with different settings have a cluster each (`service_sessions.unkept_headers`)
    targets = tuple(target for target in targets if target.weight or session or target.session)
    several = {(target.resilience.timeouts, target.resilience.retry) for target in targets}
    limits, retry = several.pop() if len(several) == 1 else (ServiceTimeouts(), None)
    changed = structs.replace(
        route,
        split=route.split if targets == route.split.targets else structs.replace(route.split, targets=targets),
        timeouts=Timeouts(
            request=route.timeouts.request or limits.request, backend=route.timeouts.backend or limits.attempt
        ),
        retry=route.retry or retry,
        session=session,
    )
    return route if changed == route else changed


def _target(
    target: Target, session: PersistentSession | None, settings: Mapping[str, Resilience], called: str
) -> Target:
    resilience = first_of(settings, callees(target, called))
    if resilience is None and session is None:
        return target
    return structs.replace(target, resilience=resilience or target.resilience, session=session)


def _workload(workload: Workload, settings: Mapping[str, Resilience]) -> Workload:
    """Return a workload with the idle time of connections to its application: the shortest of the Services that select it."""
    ports = tuple(
        structs.replace(port, protocols=tuple(_with_idle_time(protocol, settings) for protocol in port.protocols))
        if any(ref.service in settings for protocol in port.protocols for ref in protocol.services)
        else port
        for port in workload.ports
    )
    return workload if ports == workload.ports else structs.replace(workload, ports=ports)


def _with_idle_time(protocol: PortProtocol, settings: Mapping[str, Resilience]) -> PortProtocol:
    times = [settings.get(ref.service, DEFAULT).timeouts.idle for ref in protocol.services]
    return structs.replace(protocol, idle=min(filter(None, times), default=0))
