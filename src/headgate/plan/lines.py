"""A plan in few words: a line for each difference, and the numbers of differences."""

from collections.abc import Iterator

from headgate.compiler.report import Compiled, pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.formatting import pluralize
from headgate.plan.plan import AccessRow, Differences, GatewayChange, RequestChange, plan
from headgate.plan.tls import ClientCertificateChange, TlsChange
from headgate.plan.words import callers_words
from headgate.plan.world import World

NONE = "none of its own"
MAY_DIFFER = "may differ: the conditions are too complex to decide whether there are such requests"


def summary(before: Compiled, after: Compiled, snapshots: tuple[Snapshot, Snapshot] | None = None) -> tuple[str, ...]:
    """Return one line for each difference, the most important first; empty if all requests are treated alike.

    `snapshots` have the objects of both; without them, pods without a sidecar are not known.
    """
    return tuple(lines(plan(World(before, after, snapshots=snapshots))))


def lines(plan: Differences) -> Iterator[str]:
    """Yield one line for each difference of a plan."""
    yield from (f"{finding.causes[0].object}: {finding.message}" for finding in plan.unreachable)
    yield from map(access_line, (*plan.lost, *plan.gained))
    yield from map(request_line, plan.requests)
    yield from (f"TLS mode of {tls_line(change)}" for change in plan.tls)
    yield from map(client_certificate_line, plan.client_certificates)
    yield from map(gateway_line, plan.gateways)


def tls_line(change: TlsChange) -> str:
    """Return the old and the new TLS mode of pods in one line: `pods shop/web: permissive -> strict`."""
    return f"{pod_list(change.pods)}: {change.before.lower()} -> {change.after.lower()}"


def client_certificate_line(change: ClientCertificateChange) -> str:
    """Return the old and the new certificates of a Gateway port's clients in one line."""
    return f"certificates of clients of Gateway {change.gateway}, port {change.port}: {change.before_message} -> {change.after_message}"


def access_line(row: AccessRow) -> str:
    """Return an access change in one line."""
    verb = "may send" if row.type == "Gained" else "may no longer send"
    certain = "" if row.certain else f" ({MAY_DIFFER})"
    callers = f"{row.callers_message}," if ", and " in row.callers_message else row.callers_message
    to = str(row.entry) if row.entry else f"{callers_words((row.destination,))}, port {row.port}"
    return f"{callers} {verb} {row.request_message} to {to}{certain}"


def request_line(change: RequestChange) -> str:
    """Return a change to requests in one line: `Service shop/website:8080: all requests: 10% of them from ... to ...`."""
    more = f" and {len(change.request_messages) - 1} more classes" if len(change.request_messages) > 1 else ""
    certain = "" if change.certain else f" ({MAY_DIFFER})"
    return f"{change.entry}: {change.request_messages[0]}{more}: {'; '.join(change.change_messages)}{certain}"


def gateway_line(change: GatewayChange) -> str:
    """Return a change to the proxy of a Service in one line."""
    return f"gateway of Service {change.service} for clients without a sidecar: {change.before or NONE} -> {change.after or NONE}"


def counted(plan: Differences) -> str:
    """Return in one line how many differences a plan has; empty if there are none."""
    counts = (
        (len(plan.unreachable), "unreachable rule", ""),
        (len(plan.lost), "loss of access", "losses of access"),
        (len(plan.gained), "gain of access", "gains of access"),
        (len(plan.requests), "change to requests", "changes to requests"),
        (len(plan.tls), "change to TLS modes", "changes to TLS modes"),
        (len(plan.client_certificates), "change to client certificates", "changes to client certificates"),
        (len(plan.gateways), "change to gateways of Services", "changes to gateways of Services"),
        (len(plan.departures), "change outside the comparison of access", "changes outside the comparison of access"),
        (len(plan.findings), "new finding", ""),
    )
    return ", ".join(pluralize(number, singular, many) for number, singular, many in counts if number)
