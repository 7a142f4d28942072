"""A plan: what a change to objects does to requests, to access and to mutual TLS, in words and with examples."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal

from msgspec import structs

from headgate.compiler.explain import auth_words
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled
from headgate.kinds import GATEWAY
from headgate.matching.conditions import UNAMBIGUOUS
from headgate.matching.undecided import Work
from headgate.model.routing import PortRef, Route
from headgate.plan import words
from headgate.plan.access import AccessChange, access_changes
from headgate.plan.callers import Accounts
from headgate.plan.causes import AccessCauses, FindingCauses, route_causes
from headgate.plan.departures import Departure, departures, without_sidecar
from headgate.plan.moved_requests import MovedRequests
from headgate.plan.tls import ClientCertificateChange, TlsChange, client_certificate_changes, tls_changes
from headgate.plan.traffic import NO_SUCH_PORT, Entry, RequestClass, request_classes
from headgate.plan.treatment import Treatment
from headgate.plan.world import GatewayProxy, Origin, World
from headgate.resources.explanations import ExplainedRoute
from headgate.resources.inspect import Answer, ExactShare, Severity, exact_share
from headgate.resources.meta import Key
from headgate.resources.registry import SERVICE
from headgate.shared_map import replaced

UNREACHABLE = frozenset((Reason.SHADOWED, Reason.NEVER_MATCHES, Reason.NO_EFFECT))


class ReceiverShare(Answer, frozen=True, kw_only=True):
    """The share of the requests that a Service port receives, or that the proxy answers with a `status_code`."""

    share: ExactShare
    service: str = ""
    port: int = 0
    status_code: int = 0
    reason: str = ""


class Outcome(Answer, frozen=True, kw_only=True):
    """The treatment of requests in one world: their route, null if none matches, and their receivers, also as a `message`.

    `authorization_message` names the authorization server that must allow them; empty without one.
    """

    route: ExplainedRoute | None
    authorization_message: str = ""
    receivers: tuple[ReceiverShare, ...]
    message: str


class Rate(Answer, frozen=True, kw_only=True):
    """The requests to a Service in a thousand seconds. `moved` of them go to another receiver; null if only a part is affected."""

    service: str
    milli_requests_per_second: int
    moved_milli_requests_per_second: int | None = None


class RequestChange(Answer, frozen=True, kw_only=True):
    """Classes of requests to an entry whose treatment differs in the same way.

    `request_messages` have the conditions of each class, and `whole` means that all requests to the entry are affected.
    `certain` is false if it is not decided whether there are such requests. `moved_share` is the largest share that moves.
    `example` is a request, and `command` explains it.
    """

    entry: Entry
    whole: bool = False
    request_messages: tuple[str, ...]
    before: Outcome
    after: Outcome
    change_messages: tuple[str, ...]
    moved_share: ExactShare
    example: str
    command: str
    certain: bool = True
    causes: tuple[Origin, ...] = ()
    rate: Rate | None = None


class AccessRule(Answer, frozen=True, kw_only=True):
    """The rule of an access object that allows requests, or that allowed them."""

    object: Key | None
    name: str


class AccessRow(Answer, frozen=True, kw_only=True):
    """Requests that callers may send to pods in one world only.

    `callers` has SPIFFE IDs, `*` for every ServiceAccount but `except_callers`, and an empty text for plaintext; `callers_message` names
    them. `destination` is the SPIFFE ID of the pods. Without a `rule`, the pods are open. If requests to an `entry` move to the port of `moved_service`, whose
    pods deny them, there is no destination and no rule.
    """

    type: Literal["Lost", "Gained"]
    callers: tuple[str, ...]
    except_callers: tuple[str, ...] = ()
    callers_message: str
    destination: str = ""
    entry: Entry | None = None
    pods: tuple[str, ...]
    port: int
    request_message: str
    rule: AccessRule | None = None
    moved_service: str = ""
    example: str
    command: str
    certain: bool = True
    causes: tuple[Origin, ...] = ()


class GatewayChange(Answer, frozen=True, kw_only=True):
    """A Service whose clients without a sidecar get another proxy of its own."""

    service: str
    before: GatewayProxy
    after: GatewayProxy
    causes: tuple[Origin, ...] = ()


class NewFinding(Answer, frozen=True, kw_only=True):
    """A finding that only the new world has. It is `unreachable` if it is about a rule that no request reaches.

    `causes` has the object and field that it is about. If the change leaves this object as it is, `changes` has the changed
    objects among which the real cause is.
    """

    severity: Severity
    reason: str
    unreachable: bool
    message: str
    causes: tuple[Origin, ...]
    changes: tuple[Origin, ...] = ()


class Differences(Answer, frozen=True, kw_only=True):
    """All differences of two worlds, in the order in which users should read them."""

    unreachable: tuple[NewFinding, ...] = ()
    lost: tuple[AccessRow, ...] = ()
    gained: tuple[AccessRow, ...] = ()
    requests: tuple[RequestChange, ...] = ()
    tls: tuple[TlsChange, ...] = ()
    client_certificates: tuple[ClientCertificateChange, ...] = ()
    gateways: tuple[GatewayChange, ...] = ()
    departures: tuple[Departure, ...] = ()
    findings: tuple[NewFinding, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the two worlds treat all requests alike."""
        return not any(getattr(self, name) for name in self.__struct_fields__)


def plan(world: World) -> Differences:
    """Compare two worlds."""
    before, after = world.before.mesh, world.after.mesh
    sides = world.sides
    bare = tuple(map(without_sidecar, sides)) if sides else (frozenset[str](), frozenset[str]())
    access = access_rows(world, _of_guarded(access_changes(before, after), *bare))
    classes = tuple(request_classes(before, after))
    new = list(_new_findings(world))
    return Differences(
        unreachable=tuple(finding for finding in new if finding.unreachable),
        lost=(*(row for row in access if row.type == "Lost"), *rows_of_moved_requests(world, classes)),
        gained=tuple(row for row in access if row.type == "Gained"),
        requests=tuple(request_changes(world, classes)),
        tls=tuple(tls_changes(world)),
        client_certificates=tuple(client_certificate_changes(world)),
        gateways=tuple(gateway_changes(world)),
        departures=tuple(departures(*sides)) if sides else (),
        findings=tuple(finding for finding in new if not finding.unreachable),
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
    """Yield the request changes; classes with the same change are in one item."""
    groups: dict[tuple[object, ...], list[RequestClass]] = {}
    for request_class in classes:
        entry, causes = request_class.entry, tuple(route_causes(request_class, world))
        effect = request_class.before, request_class.after, causes, request_class.example is None
        groups.setdefault((entry.kind, entry.name, entry.port, entry.transport, *effect), []).append(request_class)
    secure = {(port.gateway, port.port) for port in world.after.mesh.gateways if port.tls or port.server_names}
    for items in groups.values():
        yield _request_change(items, world, secure=(items[0].entry.name, items[0].entry.port) in secure)


def _request_change(items: Sequence[RequestClass], world: World, *, secure: bool) -> RequestChange:
    first = items[0]
    several = len({request_class.entry for request_class in items}) > 1
    moved = words.moves(first.before, first.after)
    titles = [_requests(request_class, with_host=several) for request_class in items]
    example = first.example
    return RequestChange(
        entry=structs.replace(first.entry, host="") if several else first.entry,
        whole=not (first.match or first.is_rest or first.is_rest_of_names),
        request_messages=tuple(dict.fromkeys(titles)),
        before=_outcome(first.old_route, first.before),
        after=_outcome(first.new_route, first.after),
        change_messages=tuple(words.changes(first.before, first.after, _new(first, world.before)))
        or ("other reasons for the same answer",),
        moved_share=exact_share(sum((share for share, _, _ in moved), Fraction())),
        example=words.request_text(example) if example else "",
        command=words.example_command(first.entry, example, secure=secure and first.entry.kind == "Gateway")
        if example
        else "",
        certain=example is not None,
        causes=tuple(route_causes(first, world)),
    )


def _new(request_class: RequestClass, before: Compiled) -> str:
    """Return what makes requests possible that had no port before: a new Service, Gateway or port; empty if they had one."""
    entry = request_class.entry
    if request_class.before != NO_SUCH_PORT:
        return ""
    namespace, name = entry.name.split("/")
    group = SERVICE.group if entry.kind == "Service" else GATEWAY
    return "new port" if Key(group, entry.kind, namespace, name) in before.report.seen else f"new {entry.kind}"


def _requests(request_class: RequestClass, *, with_host: bool) -> str:
    text = words.requests_words(request_class.match)
    if request_class.is_rest or request_class.is_rest_of_names:
        text = words.OTHER_REQUESTS if request_class.is_rest else words.OTHER_NAMES
    host = f"host {request_class.entry.host}" if with_host and request_class.entry.host != "*" else ""
    return ", ".join(part for part in (host, "" if host and text == words.ALL_REQUESTS else text) if part)


def _outcome(route: Route | None, treatment: Treatment) -> Outcome:
    shares: dict[tuple[PortRef | None, int, str], Fraction] = {}
    for received in treatment.receivers:
        receiver = received.ref, received.status, received.reason
        shares[receiver] = shares.get(receiver, Fraction()) + received.share
    return Outcome(
        route=ExplainedRoute(object=route.origin, name=route.name) if route else None,
        receivers=tuple(
            ReceiverShare(
                share=exact_share(share),
                service=ref.service if ref else "",
                port=ref.port if ref else 0,
                status_code=status,
                reason=reason,
            )
            for (ref, status, reason), share in shares.items()
        ),
        authorization_message=auth_words(treatment.external_auth) if treatment.external_auth else "",
        message=words.receivers_words(treatment),
    )


def access_rows(world: World, changes: Iterable[AccessChange]) -> list[AccessRow]:
    """Return the access changes; pods with the same change are in one row."""
    changes_by_row: dict[AccessRow, list[AccessChange]] = {}
    accounts, causes = Accounts(world.after.mesh), AccessCauses(world)
    for change in changes:
        changes_by_row.setdefault(_access_row(change, accounts), []).append(change)
    return [
        structs.replace(
            row,
            pods=tuple(sorted({name for change in alike for name in change.workloads})),
            causes=tuple(dict.fromkeys(cause for change in alike for cause in causes.of(change))),
        )
        for row, alike in changes_by_row.items()
    ]


def _access_row(change: AccessChange, accounts: Accounts) -> AccessRow:
    """Return the row of a change, without its pods and causes."""
    example = words.sent_to(change.called, change.example) if change.example else None
    # What all callers gain, the named ones may send too.
    excepted = change.excepted if change.kind == "lost" else ()
    caller = accounts.example(change.sources, change.excepted, change.destination)
    command = words.service_command(change.called, example, caller) if change.called and example else ""
    return AccessRow(
        type="Lost" if change.kind == "lost" else "Gained",
        callers=change.sources,
        except_callers=excepted,
        callers_message=words.callers_words(change.sources, excepted),
        destination=change.destination,
        pods=(),
        port=change.port,
        request_message=words.access_requests_words(change.match, change.other) if change.is_http else "connections",
        rule=AccessRule(object=change.origin, name=change.rule) if change.origin or change.rule else None,
        example=words.request_text(example, is_http=change.is_http) if example else "",
        command=command,
        certain=example is not None,
    )


def rows_of_moved_requests(
    world: World, classes: Iterable[RequestClass], work: Work | None = None
) -> Iterator[AccessRow]:
    """Yield a row for requests that move to a backend whose pods refuse them, while a former backend allows them."""
    moved, accounts = MovedRequests(world.before.mesh, world.after.mesh, work), Accounts(world.after.mesh)
    for requests in classes:
        for loss in moved.refused(requests):
            caller = accounts.example(loss.callers, loss.excepted, loss.workload.identity)
            yield AccessRow(
                type="Lost",
                callers=loss.callers,
                except_callers=loss.excepted,
                callers_message=words.callers_words(loss.callers, loss.excepted),
                entry=requests.entry,
                pods=(loss.workload.name,),
                port=loss.ref.port,
                request_message=words.requests_words(tuple(part for part in loss.match if part != UNAMBIGUOUS)),
                moved_service=loss.ref.service,
                example=words.request_text(loss.example) if loss.example else "",
                command=words.example_command(requests.entry, loss.example, caller) if loss.example else "",
                certain=loss.example is not None,
                causes=tuple(route_causes(requests, world)),
            )


def gateway_changes(world: World) -> Iterator[GatewayChange]:
    """Yield the Services that get, change or lose a proxy of their own for clients without a sidecar."""
    old, new = (
        {gateway.name: gateway for gateway in side.report.service_gateways if gateway.serves}
        for side in (world.before, world.after)
    )
    for name in sorted(old.keys() | new.keys()):
        before, after = (side[name].proxy if name in side else "" for side in (old, new))
        if before != after:
            gateway = new.get(name) or old[name]
            cause = world.cause(gateway.about, gateway.field)
            yield GatewayChange(service=name, before=before, after=after, causes=(cause,))


def _new_findings(world: World) -> Iterator[NewFinding]:
    before, after = world.before.report.findings_of, world.after.report.findings_of
    changed, _ = replaced(before, after)
    causes = FindingCauses(world)
    for about in sorted(changed if world.known is None else changed.keys() & world.known):
        old = {(finding.reason, finding.field) for finding in before.get(about, ())}
        for finding in after[about]:
            if (finding.reason, finding.field) not in old:
                yield NewFinding(
                    severity=finding.reason.severity,
                    reason=finding.reason.value,
                    unreachable=finding.reason in UNREACHABLE,
                    message=finding.message,
                    causes=(Origin(object=finding.about, field=finding.field),),
                    changes=causes.of(finding),
                )
