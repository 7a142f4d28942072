"""A plan with what its reader knows: the files and lines of causes, and the rates of Services."""

from collections.abc import Callable

from msgspec import structs

from headgate.plan.plan import Differences, Rate, RequestChange
from headgate.plan.world import Origin
from headgate.resources.meta import Key


def with_files(plan: Differences, position: Callable[[Key, str], tuple[str, int]]) -> Differences:
    """Return a plan whose causes have a file and a line; `position` returns both for an object and a field."""

    def located(causes: tuple[Origin, ...]) -> tuple[Origin, ...]:
        places = [(cause, position(cause.object, cause.field)) for cause in causes]
        return tuple(structs.replace(cause, file=file, line=line) for cause, (file, line) in places)

    lists = {
        name: getattr(plan, name)
        for name in ("unreachable", "lost", "gained", "requests", "tls", "gateways", "findings")
    }
    located_lists = {
        name: tuple(structs.replace(row, causes=located(row.causes)) for row in items) for name, items in lists.items()
    }
    for name in ("unreachable", "findings"):
        located_lists[name] = tuple(structs.replace(row, changes=located(row.changes)) for row in located_lists[name])
    return structs.replace(plan, **located_lists)


def with_rates(plan: Differences, rate_of: Callable[[str], float | None]) -> Differences:
    """Return a plan with the rates of Services; `rate_of` returns requests per second, None if unknown."""
    return structs.replace(plan, requests=tuple(_with_rate(change, rate_of) for change in plan.requests))


def _with_rate(change: RequestChange, rate_of: Callable[[str], float | None]) -> RequestChange:
    rps = rate_of(change.entry.name) if change.entry.kind == "Service" else None
    if rps is None:
        return change
    moved = round(1000 * rps * change.moved_share.fraction) if change.whole else None
    rate = Rate(
        service=change.entry.name,
        milli_requests_per_second=round(1000 * rps),
        moved_milli_requests_per_second=moved,
    )
    return structs.replace(change, rate=rate)
