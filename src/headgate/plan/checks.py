"""Checks of access for CI: each holds for all requests, or has a counterexample."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headgate.compiler.snapshot import Snapshot, account_name
from headgate.errors import HeadgateError, NotFound
from headgate.kinds import names_of
from headgate.model.authorization import port_of
from headgate.model.identities import gateway_id, spiffe_id
from headgate.model.routing import Mesh, Workload
from headgate.plan import words
from headgate.plan.access import PLAINTEXT, permissions, points, setting_of
from headgate.plan.conditions import METHOD, PATH, Conjunction, Literal, Test
from headgate.plan.lines import access_line
from headgate.plan.plan import AccessRow, Plan, sent_to
from headgate.plan.regular import Algebra
from headgate.plan.requests import request_of
from headgate.plan.solver import Solver
from headgate.plan.undecided import Undecided
from headgate.resources.meta import Value
from headgate.resources.pod_owners import deployment_of
from headgate.resources.regexes import fault

GATEWAY = "gateway"
_KINDS = {
    word: names.singular
    for names in map(names_of, ("ServiceAccount", "Deployment", "Pod", "Service"))
    for word in names.words
}


class InvalidCheck(HeadgateError):
    """A part of a check is invalid."""


class Never(Value, frozen=True, kw_only=True):
    """The claim that `caller` may never send `request` to `server`.

    Both are `KIND/NAME` or `KIND/NAMESPACE/NAME`; the caller can be `gateway`. The request is a method and a regular
    expression (RE2) for the path, `GET /admin.*`; an empty text means any request.
    """

    caller: str
    server: str
    request: str = ""
    namespace: str = "default"


class Verdict(Value, frozen=True, kw_only=True):
    """Whether a check holds, with the reason, or counterexamples: one line each, and the command that explains it."""

    check: str
    holds: bool
    reason: str = ""
    counterexamples: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class _Party(NamedTuple):
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return self.kind if self.kind == GATEWAY else f"{self.kind} {self.namespace}/{self.name}"


def no_new_access(found: Plan) -> Verdict:
    """Say whether a plan gives no caller access that it did not have."""
    return Verdict(
        check="no new access",
        holds=not found.gained,
        reason="" if found.gained else "every request that a caller may send after the change, it may send now",
        counterexamples=tuple(_counterexample(item) for item in found.gained),
        commands=tuple(item.command for item in found.gained if item.command),
    )


def _counterexample(item: AccessRow) -> str:
    return access_line(item) + (f", for example {item.example}" if item.example else "")


def never(mesh: Mesh, snapshot: Snapshot, claim: Never) -> Verdict:
    """Say whether a claim holds in a mesh. Raises InvalidCheck, and NotFound if the server has no pods."""
    caller, server = _party(claim.caller, claim.namespace), _party(claim.server, claim.namespace)
    request = _request(claim.request)
    pods = sorted(_pods(mesh, snapshot, server))
    if not pods:
        raise NotFound(f"no pod of {server} exists, so nothing can be proven; correct the name, or give -n NAMESPACE")
    identities = _identities(mesh, snapshot, caller)
    known = {item.name: item for item in mesh.workloads}
    found: list[tuple[str, str]] = []
    for name in pods:
        if name in known:
            found += _bypasses(mesh, known[name])
            found += (item for identity in identities for item in _allowed(known[name], identity, request))
        else:
            found.append((f"pod {name} has no sidecar, so it allows all requests", ""))
    distinct = dict(found)
    title = f"never {caller} to {server}" + (f" {claim.request}" if claim.request else "")
    count = len(pods)
    return Verdict(
        check=title,
        holds=not distinct,
        reason="" if distinct else f"no rule of {count} {'pod' if count == 1 else 'pods'} allows such a request",
        counterexamples=tuple(distinct),
        commands=tuple(command for command in distinct.values() if command),
    )


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
            f"{text!r} names no caller or server; write serviceaccount/NAME, deployment/NAME, pod/NAME, service/NAME, or"
            " KIND/NAMESPACE/NAME"
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
    if party.kind == _KINDS["serviceaccount"]:
        return spiffe_id(mesh.trust_domain, party.namespace, party.name), PLAINTEXT
    names = sorted(_pods(mesh, snapshot, party))
    if not names:
        raise NotFound(f"no pod of {party} exists, so nothing can be proven; correct the name, or give -n NAMESPACE")
    accounts = dict.fromkeys((name.partition("/")[0], account_name(snapshot.pods[name])) for name in names)
    return (*(spiffe_id(mesh.trust_domain, *account) for account in accounts), PLAINTEXT)


def _pods(mesh: Mesh, snapshot: Snapshot, party: _Party) -> Iterator[str]:
    full = f"{party.namespace}/{party.name}"
    if party.kind == _KINDS["service"]:
        yield from {item.workload for entry in mesh.endpoints if entry.ref.service == full for item in entry.ready} - {
            ""
        }
        return
    for name, pod in snapshot.pods.items():
        if name.partition("/")[0] != party.namespace:
            continue
        own = {
            _KINDS["serviceaccount"]: account_name(pod),
            _KINDS["deployment"]: deployment_of(pod.metadata),
            _KINDS["pod"]: name.partition("/")[2],
        }
        if own.get(party.kind) == party.name:
            yield name


def _bypasses(mesh: Mesh, workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield the ports of a workload to which Services lead, but which its sidecar does not serve."""
    for entry in mesh.endpoints:
        for item in entry.ready:
            if item.workload == workload.name and port_of(workload, item.port) is None:
                yield (
                    f"{entry.ref} leads to port {item.port} of pod {workload.name}, which its sidecar does not serve",
                    "",
                )


def _allowed(workload: Workload, identity: str, request: Conjunction) -> Iterator[tuple[str, str]]:
    """Yield a counterexample for each rule that allows one of the requests, and its command."""
    solver = Solver(setting_of(workload, identity), Algebra())
    for point, _ in points(workload, None):
        for permission in permissions(point, identity) if point else ():
            rule = " ".join(filter(None, (str(permission.origin or ""), permission.rule))) or "it is open"
            where = f"pod {workload.name}, port {point.port.port if point else 0}, because of {rule}"
            caller = words.callers_words((identity,))
            try:
                values = solver.solve((*permission.match, *request), ())
            except Undecided:
                yield f"{caller} may reach {where}: the conditions are too complex to decide this", ""
                continue
            if values is not None:
                example = sent_to(point.called if point else None, request_of(values, solver.setting))
                command = words.service_command(point.called, example, identity) if point and point.called else ""
                sent = words.request_text(example, is_http=point is None or point.is_http)
                yield f"{caller} may send {sent} to {where}", command
