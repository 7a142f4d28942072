"""Print a plan as text: unreachable rules and lost access first, then requests, TLS modes and findings."""

from collections.abc import Iterable, Iterator

from rich.console import Console

from headgate.cli.output import note, stdout
from headgate.compiler.report import pod_list
from headgate.plan.checks import CheckOutcome, CheckVerdict
from headgate.plan.lines import (
    MAY_DIFFER,
    access_line,
    client_certificate_line,
    counted,
    gateway_line,
    tls_line,
)
from headgate.plan.plan import AccessRow, AccessRule, Differences, NewFinding, Rate, RequestChange
from headgate.plan.planning import PlanStatus
from headgate.plan.tls import TlsChange
from headgate.plan.words import callers_words
from headgate.plan.world import Origin
from headgate.resources.audit_mode import MODE
from headgate.resources.explanations import ExplainedRoute
from headgate.resources.meta import Key

SHOWN_CLASSES = 5
_VERDICTS = {
    CheckOutcome.HOLDS: "holds",
    CheckOutcome.DOES_NOT_HOLD: "does not hold",
    CheckOutcome.UNDECIDED: "undecided",
}


def show(result: PlanStatus, *, only_checks: bool) -> None:
    """Print the verdicts of checks and the new findings, or without checks the plan."""
    console = stdout()
    if result.revision_message:
        note(result.revision_message)
    if only_checks:
        for verdict in result.verdicts:
            _print(console, _verdict(verdict))
        for finding in (*result.differences.unreachable, *result.differences.findings):
            _print(console, ("new finding: " + line.lstrip() for line in _finding(finding)))
        return
    for title, blocks in _sections(result.differences):
        if blocks:
            console.print(title, style="bold")
            for block in blocks:
                _print(console, block)
            console.print()
    _show_audits(result, console)
    if result.on_creation:
        verb = "gets its" if len(result.on_creation) == 1 else "get their"
        note(f"{pod_list(result.on_creation)} {verb} change only when created again")
    note(counted(result.differences) or "nothing changes")


def _show_audits(result: PlanStatus, console: Console) -> None:
    if result.audited:
        console.print("Audit mode denies nothing; enforced, it would deny", style="bold")
        for row in result.audited:
            _print(console, _would_deny(row))
        console.print()
    for key in result.kept_audits:
        note(_kept_audit(key))


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _sections(differences: Differences) -> Iterator[tuple[str, list[list[str]]]]:
    yield "Rules that no request reaches any more", [list(_finding(finding)) for finding in differences.unreachable]
    yield "Access lost", [list(_access(finding)) for finding in differences.lost]
    yield "Access gained", [list(_access(finding)) for finding in differences.gained]
    yield "Requests", [list(_requests(finding)) for finding in differences.requests]
    yield "TLS modes", [list(_tls(finding)) for finding in differences.tls]
    yield (
        "Client certificates",
        [
            [f"  {client_certificate_line(change)}", *_causes(change.causes)]
            for change in differences.client_certificates
        ],
    )
    yield (
        "Gateways of Services",
        [[f"  {gateway_line(finding)}", *_causes(finding.causes)] for finding in differences.gateways],
    )
    yield "Access that sidecars no longer decide", [[f"  {finding.message}"] for finding in differences.departures]
    yield "New findings", [list(_finding(finding)) for finding in differences.findings]


def _verdict(verdict: CheckVerdict) -> Iterator[str]:
    word = _VERDICTS.get(verdict.verdict, verdict.verdict.value)
    if verdict.holds:
        yield f"{word}: {verdict.message}: {'; '.join(verdict.reason_messages)}"
        return
    yield f"{word}: {verdict.message}"
    yield from (f"  {counterexample.message}" for counterexample in verdict.counterexamples)
    commands = dict.fromkeys(counterexample.command for counterexample in verdict.counterexamples)
    yield from (f"  see: {command}" for command in commands if command)
    yield from (f"  undecided: {reason}" for reason in verdict.reason_messages)


def _finding(finding: NewFinding) -> Iterator[str]:
    for cause in finding.causes:
        yield f"  {_place(cause)}{finding.severity.word} {finding.reason} {cause.object}: {cause.field}: {finding.message}"
    # It is about an object that the change leaves as it is: name the changed ones.
    yield from _causes(finding.changes[:SHOWN_CLASSES], "perhaps " if len(finding.changes) > 1 else "")
    if len(finding.changes) > SHOWN_CLASSES:
        yield f"    cause    perhaps another one of {len(finding.changes)} changed objects (-o json lists them)"


def _access(row: AccessRow) -> Iterator[str]:
    yield f"  {access_line(row)}"
    yield f"    pods     {pod_list(row.pods)}"
    if row.moved_service:
        yield f"    because  requests move to {row.moved_service}:{row.port}, whose pods refuse them"
    else:
        yield f"    {'allowed ' if row.type == 'Gained' else 'was     '} {_by(row.rule)}"
    yield from _causes(row.causes)
    yield from _example(row.command, row.example)


def _would_deny(row: AccessRow) -> Iterator[str]:
    to = f"{callers_words((row.destination,))}, port {row.port}"
    yield f"  {row.request_message} from {row.callers_message} to {to}"
    yield f"    pods     {pod_list(row.pods)}"


def _kept_audit(key: Key) -> str:
    return (
        f"{key} stays in audit mode: its manifest does not set {MODE}, and an apply keeps the annotation of the live object;"
        f" to enforce it: kubectl annotate {key.kind.lower()} {key.name} -n {key.namespace} {MODE}-"
    )


def _by(rule: AccessRule | None) -> str:
    if rule is None:
        return "because the pods are open"
    return "by " + ", ".join(part for part in (str(rule.object or ""), rule.name) if part)


def _requests(change: RequestChange) -> Iterator[str]:
    yield f"  {change.entry}: {change.request_messages[0]}"
    yield from (f"    and      {text}" for text in change.request_messages[1:SHOWN_CLASSES])
    if len(change.request_messages) > SHOWN_CLASSES:
        yield f"    and      {len(change.request_messages) - SHOWN_CLASSES} more classes of requests (-o json lists them)"
    if not change.certain:
        yield f"    {MAY_DIFFER}"
    yield f"    before   {change.before.message} ({_route(change.before.route)})"
    yield f"    after    {change.after.message} ({_route(change.after.route)})"
    yield from (f"    change   {text}" for text in change.change_messages)
    if change.rate:
        yield f"    rate     {_rate(change.rate)}"
    yield from _causes(change.causes)
    yield from _example(change.command, change.example)


def _route(route: ExplainedRoute | None) -> str:
    if route is None:
        return "no route"
    return route.words if route.object else "the Service itself"


def _rate(rate: Rate) -> str:
    moved, rps = rate.moved_milli_requests_per_second, f"{rate.milli_requests_per_second / 1000:.3g}"
    if moved is None:
        return f"a part of the {rps} requests per second to {rate.service}"
    return f"{moved / 1000:.3g} of the {rps} requests per second to {rate.service} move"


def _tls(change: TlsChange) -> Iterator[str]:
    yield f"  {tls_line(change)}"
    yield from _causes(change.causes)


def _causes(causes: Iterable[Origin], certainty: str = "") -> Iterator[str]:
    for cause in causes:
        what = f"the deletion of {cause.object}" if cause.deleted else f"{cause.object}: {cause.field}"
        yield f"    cause    {certainty}{_place(cause)}{what}"


def _place(cause: Origin) -> str:
    return f"{cause.file}:{cause.line}: " if cause.file else ""


def _example(command: str, example: str) -> Iterator[str]:
    if command or example:
        yield f"    example  {command or example}"
