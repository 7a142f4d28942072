"""A plan with what its reader knows: the files and lines of causes, and the rates of Services."""

from collections.abc import Callable

from msgspec import structs

from headgate.plan.plan import Plan, Rate, RequestChange
from headgate.plan.world import Origin


def with_files(found: Plan, position: Callable[[str, str], tuple[str, int]]) -> Plan:
    """Return a plan whose causes have a file and a line; `position` returns both for an object and a field."""

    def located(causes: tuple[Origin, ...]) -> tuple[Origin, ...]:
        places = [(item, position(item.object, item.field)) for item in causes]
        return tuple(structs.replace(item, file=file, line=line) for item, (file, line) in places)

    lists = {
        name: getattr(found, name)
        for name in ("unreachable", "lost", "gained", "requests", "tls", "gateways", "findings")
    }
    located_lists = {
        name: tuple(structs.replace(item, causes=located(item.causes)) for item in items)
        for name, items in lists.items()
    }
    return structs.replace(found, **located_lists)


def with_rates(found: Plan, rate_of: Callable[[str], float | None]) -> Plan:
    """Return a plan with the rates of Services; `rate_of` returns requests per second, None if unknown."""
    return structs.replace(found, requests=tuple(_with_rate(item, rate_of(item.service)) for item in found.requests))


def _with_rate(item: RequestChange, rps: float | None) -> RequestChange:
    if rps is None or not item.service:
        return item
    moved = round(rps * item.share, 3) if item.whole else None
    return structs.replace(item, rate=Rate(service=item.service, rps=round(rps, 3), moved=moved))
