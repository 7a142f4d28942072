"""Checks of access for CI: each holds for all requests, has a counterexample, or is undecided for a reason (D32)."""

import enum
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from headgate.compiler.explain_request import pods_of
from headgate.compiler.reasons import Reason
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.compiler.workloads import excluded_ports, has_sidecar
from headgate.errors import HeadgateError, NotFound
from headgate.formatting import pluralize
from headgate.kinds import names_of
from headgate.matching.conditions import METHOD, PATH, Conjunction, Literal, Test
from headgate.matching.regular import Algebra
from headgate.matching.requests import request_of
from headgate.matching.solver import Solver
from headgate.matching.undecided import Undecided
from headgate.model.evaluate import UNAVAILABLE
from headgate.model.identities import gateway_id, spiffe_id
from headgate.model.routing import Mesh, Workload
from headgate.plan import words
from headgate.plan.access import PLAINTEXT, permissions, points, setting_of
from headgate.plan.departures import Departure, Side, bypass_message, bypasses, invalid, is_restricted
from headgate.plan.lines import access_line
from headgate.plan.plan import AccessRow, Differences, NewFinding, RequestChange
from headgate.resources.core.pod import MeshPod
from headgate.resources.inspect import Answer
from headgate.resources.regexes import fault
from headgate.resources.registry import SERVICE, SERVICE_ACCOUNT
from headgate.resources.request_spec import CALLER_FORMS, CALLER_KINDS, RequestOrigin

UNGUARDED = frozenset(
    reason.value
    for reason in (
        Reason.NOT_ENFORCED,
        Reason.NOT_INJECTED,
        Reason.TARGET_PORT_NOT_DECLARED,
        Reason.GATEWAY_BYPASSED,
        Reason.IDENTITY_UNAVAILABLE,
        Reason.RESTART_NEEDED,
        Reason.AUDIT_WITHOUT_EFFECT,
        Reason.PROTOCOL_CONFLICT,
        Reason.INVALID,
    )
)
"""Reasons of new findings after which a comparison of access is not complete."""
GATEWAY = "gateway"
_KINDS = {word: kind for kind in (*CALLER_KINDS, SERVICE.kind) for word in names_of(kind).words}


class InvalidCheck(HeadgateError):
    """A part of a check is invalid."""


class Never(Answer, frozen=True, kw_only=True):
    """The claim that `caller` may never send `request` to `server`.

    Both are `KIND/NAME` or `KIND/NAMESPACE/NAME`; the caller can be `gateway`. The request is a method and a regular
    expression (RE2) for the path, `GET /admin.*`; an empty text means any request.
    """

    caller: str
    server: str
    request: str = ""
    namespace: str = "default"


class CheckName(enum.Enum):
    """The check: no caller gets new access, or a caller may never send a request to a server."""

    NO_NEW_ACCESS = "NoNewAccess"
    NEVER = "Never"


class CheckOutcome(enum.Enum):
    """The verdict of a check: it holds for all requests, it does not, or this is not decided."""

    HOLDS = "Holds"
    DOES_NOT_HOLD = "DoesNotHold"
    UNDECIDED = "Undecided"


class Counterexample(Answer, frozen=True, kw_only=True):
    """Why a check does not hold, with the command that explains it, if there is one."""

    message: str
    command: str = ""


class CheckVerdict(Answer, frozen=True, kw_only=True):
    """The verdict of a check, which `message` describes.

    `reason_messages` say why it holds, or what is not decided: the latter can be next to counterexamples.
    """

    check: CheckName
    message: str
    verdict: CheckOutcome
    reason_messages: tuple[str, ...] = ()
    counterexamples: tuple[Counterexample, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the check holds for all requests."""
        return self.verdict is CheckOutcome.HOLDS


def decided(check: CheckName, message: str, proof: str, answers: Collection["CheckAnswer"]) -> CheckVerdict:
    """Return the verdict of a check from all answers against it; `proof` says why it holds without any."""
    against = {answer.text: answer.command for answer in answers if answer.is_counterexample}
    open_ = tuple(dict.fromkeys(answer.text for answer in answers if not answer.is_counterexample))
    verdict = CheckOutcome.DOES_NOT_HOLD if against else CheckOutcome.UNDECIDED if open_ else CheckOutcome.HOLDS
    return CheckVerdict(
        check=check,
        message=message,
        verdict=verdict,
        reason_messages=open_ if against or open_ else (proof,),
        counterexamples=tuple(Counterexample(message=text, command=command) for text, command in against.items()),
    )


_PASSING = (0, UNAVAILABLE, *range(300, 400))
"""The statuses of backends, of backends without endpoints, which may get some later, and of redirects."""


class CheckAnswer(NamedTuple):
    """What speaks against a check: a counterexample with the command that explains it, or something that is not decided."""

    text: str
    command: str = ""
    is_counterexample: bool = True


class _Party(NamedTuple):
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return self.kind if self.kind == GATEWAY else f"{self.kind.lower()} {self.namespace}/{self.name}"


def no_new_access(plan: Differences, left_out: Collection[str] = ()) -> CheckVerdict:
    """Return whether a plan gives no caller access that it did not have; `left_out` says which changed objects it lacks."""
    gained = [CheckAnswer(_counterexample(row), row.command, row.certain) for row in plan.gained]
    findings = [_of_finding(finding) for finding in plan.findings if finding.reason in UNGUARDED]
    return decided(
        CheckName.NO_NEW_ACCESS,
        "no new access",
        "every request that a caller may send after the change, it may send now",
        [
            *gained,
            *_unauthorized(plan.requests),
            *map(_of_departure, plan.departures),
            *findings,
            *_undecided(left_out),
        ],
    )


def _counterexample(row: AccessRow) -> str:
    return access_line(row) + (f", for example {row.example}" if row.example else "")


def _unauthorized(changes: Iterable[RequestChange]) -> Iterator[CheckAnswer]:
    """Yield the requests that no longer need the permission of the authorization server that decided about them."""
    for change in changes:
        before, after = change.before.authorization_message, change.after.authorization_message
        passes = any(receiver.status_code in _PASSING for receiver in change.after.receivers)
        if passes and before and before != after:
            requests = f"{change.entry}: {'; '.join(change.request_messages)}"
            now = f"decided by {after}" if after else "allowed without a decision"
            text = f"{requests}: decided by {before} before, {now}"
            yield CheckAnswer(text, change.command, change.certain and not after)


def _of_departure(departure: Departure) -> CheckAnswer:
    return CheckAnswer(departure.message, is_counterexample=departure.type == "GivesAccess")


def _of_finding(finding: NewFinding) -> CheckAnswer:
    return CheckAnswer(f"new finding {finding.reason} about {finding.causes[0].object}", is_counterexample=False)


def _undecided(reasons: Collection[str]) -> Iterator[CheckAnswer]:
    yield from (CheckAnswer(reason, is_counterexample=False) for reason in reasons)


def never(side: Side, claim: Never, left_out: Collection[str] = ()) -> CheckVerdict:
    """Return whether a claim holds in a mesh; `left_out` says which objects it lacks.

    Raises InvalidCheck, and NotFound if the server has no pods.
    """
    mesh, snapshot = side
    caller, server = _party(claim.caller, claim.namespace), _party(claim.server, claim.namespace)
    request = _request(claim.request)
    pods = sorted(_pods(mesh, snapshot, server))
    if not pods:
        raise NotFound(f"no pod of {server} exists, so nothing can be proven; correct the name, or give -n NAMESPACE")
    identities = _identities(mesh, snapshot, caller)
    workloads = {workload.name: workload for workload in mesh.workloads}
    answers = [*map(_of_departure, invalid(snapshot)), *_undecided(left_out), *_foreign(mesh, server)]
    for name in pods:
        if workload := workloads.get(name):
            answers += _unserved(snapshot, workload)
            answers += (answer for identity in identities for answer in _allowed(workload, identity, request))
        elif has_sidecar(snapshot.pods[name]):
            answers += _undecided([f"pod {name} has no usable address or ServiceAccount"])
        else:
            answers.append(CheckAnswer(f"pod {name} has no sidecar, so it allows all requests"))
    answers += (CheckAnswer(bypass_message(ref, port, workload.name)) for ref, port, workload in bypasses(mesh, pods))
    title = f"never {caller} to {server}" + (f" {claim.request}" if claim.request else "")
    proof = f"no rule of {pluralize(len(pods), 'pod')} allows such a request"
    bare = sum(_is_passable(snapshot.pods[name], workloads[name]) for name in pods if name in workloads)
    return decided(CheckName.NEVER, title, f"{proof}; {_PAST_SIDECARS.format(bare)}" if bare else proof, answers)


_PAST_SIDECARS = (
    "but programs of this machine can call {0} of them past the sidecar, at $PORT, which --network pod prevents"
)


def _is_passable(pod: MeshPod, workload: Workload) -> bool:
    """Return whether a program can call a running pod past its sidecar, because it shares the machine's network.

    A pod of files has no UID: it may run on a cluster, where its sidecar is transparent.
    """
    return workload.capture == "explicit" and bool(pod.metadata.uid)


def _foreign(mesh: Mesh, server: _Party) -> Iterator[CheckAnswer]:
    """Yield the ready addresses of a Service that belong to no pod of the mesh."""
    full = f"{server.namespace}/{server.name}"
    for entry in mesh.endpoints if server.kind == SERVICE.kind else ():
        for target in entry.ready:
            if entry.ref.service == full and not target.workload:
                yield CheckAnswer(
                    f"{entry.ref} leads to {target.address}, which is no pod of the mesh", is_counterexample=False
                )


def _unserved(snapshot: Snapshot, workload: Workload) -> Iterator[CheckAnswer]:
    """Yield what reaches the programs of a workload without a rule: excluded ports, and all other ports of an open one."""
    for port in sorted(excluded_ports(snapshot.pods[workload.name])):
        yield CheckAnswer(f"port {port} of pod {workload.name} is excluded from its sidecar, so it allows all requests")
    if not workload.ports and not is_restricted(workload):
        yield CheckAnswer(f"pod {workload.name} is open, and declares no port")


def check_claim(claim: Never) -> None:
    """Check the parts of a claim that need no comparison with objects. Raises InvalidCheck."""
    _party(claim.caller, claim.namespace)
    if _party(claim.server, claim.namespace).kind == GATEWAY:
        raise InvalidCheck("the gateway allows all requests, so TO can't be the gateway; name a workload")
    _request(claim.request)


def _party(text: str, namespace: str) -> _Party:
    if text == GATEWAY:
        return _Party(GATEWAY, "", "")
    kind, _, name = text.partition("/")
    own, slash, rest = name.partition("/")
    if kind.lower() not in _KINDS or not own or (slash and not rest) or "/" in rest:
        raise InvalidCheck(
            f"{text!r} names no caller or server; write {CALLER_FORMS}, service/NAME, or KIND/NAMESPACE/NAME"
        )
    return _Party(_KINDS[kind.lower()], own if slash else namespace, rest if slash else own)


def _request(text: str) -> Conjunction:
    if not text:
        return ()
    first, _, second = text.partition(" ")
    method, path = (first, second.strip()) if second else ("*", first)
    if not path.startswith("/") or (reason := fault(path)):
        reason = f"its path {reason}" if path.startswith("/") else "its path must begin with a slash"
        raise InvalidCheck(f"the request {text!r} is invalid: {reason}; write it like 'GET /admin/.*'")
    literal = Literal(PATH, Test("regex", path))
    return (literal,) if method == "*" else (literal, Literal(METHOD, Test("one of", method.upper())))


def _identities(mesh: Mesh, snapshot: Snapshot, party: _Party) -> Sequence[str]:
    """Return the identities of a caller, and PLAINTEXT, because a pod can call without its sidecar."""
    if party.kind == GATEWAY:
        return (gateway_id(mesh.trust_domain),)
    if party.kind == SERVICE_ACCOUNT.kind:
        return spiffe_id(mesh.trust_domain, party.namespace, party.name), PLAINTEXT
    names = sorted(_pods(mesh, snapshot, party))
    if not names:
        raise NotFound(f"no pod of {party} exists, so nothing can be proven; correct the name, or give -n NAMESPACE")
    accounts = dict.fromkeys((name.partition("/")[0], account_name(snapshot.pods[name])) for name in names)
    return (*(spiffe_id(mesh.trust_domain, *account) for account in accounts), PLAINTEXT)


def _pods(mesh: Mesh, snapshot: Snapshot, party: _Party) -> Iterator[str]:
    full = f"{party.namespace}/{party.name}"
    if party.kind == SERVICE.kind:
        service = snapshot.services.get(full)
        selected = (
            snapshot.selected(party.namespace, service[1].spec.selected) if service and service[1].spec.selected else ()
        )
        ready = (target.workload for entry in mesh.endpoints if entry.ref.service == full for target in entry.ready)
        yield from {name for name in (*selected, *ready) if name in snapshot.pods}
        return
    for kind in CALLER_KINDS:
        if kind == party.kind:
            yield from pods_of(snapshot, RequestOrigin(kind=kind, namespace=party.namespace, name=party.name))


def _allowed(workload: Workload, identity: str, request: Conjunction) -> Iterator[CheckAnswer]:
    """Yield a counterexample for each rule that allows one of the requests."""
    solver = Solver(setting_of(workload, identity), Algebra())
    for point, _ in points(workload, None):
        for permission in permissions(point, identity) if point else ():
            rule = " ".join(filter(None, (str(permission.origin or ""), permission.rule))) or "it is open"
            where = f"pod {workload.name}, port {point.port.port if point else 0}, because of {rule}"
            caller = words.callers_words((identity,))
            try:
                values = solver.solve((*permission.match, *request), ())
            except Undecided:
                text = f"{caller} may reach {where}: the conditions are too complex to decide this"
                yield CheckAnswer(text, is_counterexample=False)
                continue
            if values is not None:
                example = words.sent_to(point.called if point else None, request_of(values, solver.setting))
                command = words.service_command(point.called, example, identity) if point and point.called else ""
                sent = words.request_text(example, is_http=point is None or point.is_http)
                yield CheckAnswer(f"{caller} may send {sent} to {where}", command)
