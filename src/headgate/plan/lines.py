"""A plan in few words: a line for each difference, and the numbers of differences."""

from collections.abc import Iterator

from headgate.compiler.report import Compiled, pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.formatting import pluralize
from headgate.plan.plan import AccessRow, Differences, GatewayChange, RequestChange, plan
from headgate.plan.words import callers_words
from headgate.plan.world import World

NONE = "none of its own"
MAY_DIFFER = "may differ: the conditions are too complex to decide whether there are such requests"


def summary(before: Compiled, after: Compiled, snapshots: tuple[Snapshot, Snapshot] | None = None) -> tuple[str, ...]:
    """Return one line for each difference, the most important first; empty if all requests are treated alike.

    `snapshots` have the objects of both; without them, pods without a sidecar are not known.
    """
    return tuple(lines(plan(World(before, after, snapshots=snapshots))))


def lines(found: Differences) -> Iterator[str]:
    """Yield one line for each difference of a plan."""
    yield from (f"{item.causes[0].object}: {item.message}" for item in found.unreachable)
    yield from map(access_line, (*found.lost, *found.gained))
    yield from map(request_line, found.requests)
    yield from (f"TLS mode of {pod_list(item.pods)}: {item.before} -> {item.after}" for item in found.tls)
    yield from map(gateway_line, found.gateways)


def access_line(item: AccessRow) -> str:
    """Return a change of access in one line."""
    verb = "may send" if item.type == "Gained" else "may no longer send"
    certain = "" if item.certain else f" ({MAY_DIFFER})"
    to = str(item.entry) if item.entry else f"{callers_words((item.destination,))}, port {item.port}"
    return f"{callers_words(item.callers)} {verb} {item.request_message} to {to}{certain}"


def request_line(item: RequestChange) -> str:
    """Return a change to requests in one line: `Service shop/website:8080: all requests: 10 % of them from ... to ...`."""
    more = f" and {len(item.request_messages) - 1} more classes" if len(item.request_messages) > 1 else ""
    certain = "" if item.certain else f" ({MAY_DIFFER})"
    return f"{item.entry}: {item.request_messages[0]}{more}: {'; '.join(item.change_messages)}{certain}"


def gateway_line(item: GatewayChange) -> str:
    """Return a change to the proxy of a Service in one line."""
    return f"gateway of Service {item.service} for clients without a sidecar: {item.before or NONE} -> {item.after or NONE}"


def counted(found: Differences) -> str:
    """Return the numbers of differences of a plan in one line; empty if there are none."""
    counts = (
        (len(found.unreachable), "unreachable rule", ""),
        (len(found.lost), "loss of access", "losses of access"),
        (len(found.gained), "gain of access", "gains of access"),
        (len(found.requests), "change to requests", "changes to requests"),
        (len(found.tls), "change to TLS modes", "changes to TLS modes"),
        (len(found.gateways), "change to gateways of Services", "changes to gateways of Services"),
        (len(found.departures), "change outside the comparison of access", "changes outside the comparison of access"),
        (len(found.findings), "new finding", ""),
    )
    return ", ".join(pluralize(number, one, many) for number, one, many in counts if number)
