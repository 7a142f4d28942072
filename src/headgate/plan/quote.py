"""What one write does to requests and access, in a few lines: for the warnings that the API server sends with its answer."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from headgate.compiler.report import pod_list
from headgate.matching.undecided import Exhausted, Work
from headgate.model.routing import Mesh
from headgate.plan.access import ANY_IDENTITY, AccessChange, unsorted_access_changes
from headgate.plan.lines import counted, lines
from headgate.plan.plan import (
    AccessRow,
    Differences,
    access_rows,
    gateway_changes,
    request_changes,
    rows_of_moved_requests,
)
from headgate.plan.tls import client_certificate_changes, tls_changes
from headgate.plan.traffic import RequestClass, request_classes
from headgate.plan.treatment import Treatment
from headgate.plan.world import World

STEPS = 30_000
"""The limit of the search: about 0.1 s. It suffices for a new weight in a Service with 1,800 routes."""
LONGEST = 256
"""The highest number of characters. An API server may shorten a longer warning."""
MOST = 100
"""The highest number of differences for which the search goes on."""
_FURTHER = ("second", "third")  # the differences after the first one that a write shows
_TITLE = "effect on requests and access"


def quote(
    world: World, *, only_served: bool, command: str = "", on_creation: Sequence[str] = (), rules: str = ""
) -> tuple[str, ...]:
    """Return the plan of a write in up to three lines; empty if the write changes nothing, or if the search finds no difference in time.

    With `only_served`, leave out requests that no backend served before, and pods without a ready endpoint: for an object
    that is created or deleted, often together with its workloads. `command` shows the whole plan. Pods `on_creation` get
    their change only when they are created again. `rules` says which rules decide, if not all proxies have the same.
    """
    title = f"{_TITLE}, once {pod_list(on_creation)} are created again" if on_creation else _TITLE
    title += f", {rules}" if rules else ""
    plan, is_whole = _found(world, only_served=only_served)
    shown = tuple(lines(plan))
    if not shown:
        return ()
    if len(shown) == 1 and is_whole and len(text := f"{title}: {shown[0]}") <= LONGEST:
        return (text,)
    numbers = counted(plan) if is_whole else f"at least {counted(plan)}"
    start = f"{title}: {numbers}; first: " if len(shown) > 1 or not is_whole else f"{title}: "
    end = f" ({command} shows all)" if command else ""
    others = (f"{title}: {number}: {line}" for number, line in zip(_FURTHER, shown[1:], strict=False))
    return (
        f"{start}{shortened(shown[0], LONGEST - len(start) - len(end))}{end}",
        *(shortened(other, LONGEST) for other in others),
    )


def shortened(text: str, limit: int) -> str:
    """Return a text with at most `limit` characters; ` ...` replaces its end if it is longer."""
    return text if len(text) <= limit else f"{text[: limit - 4]} ..."


class _Differences(NamedTuple):
    access: list[AccessChange]
    classes: list[RequestClass]
    moved: list[AccessRow]


def _found(world: World, *, only_served: bool) -> tuple[Differences, bool]:
    """Return the differences, without findings, and whether they are all."""
    before, after = world.before.mesh, world.after.mesh
    work, differences, is_whole = Work(STEPS), _Differences([], [], []), True
    classes = (
        request_class
        for request_class in request_classes(before, after, work)
        if not only_served or _is_served(request_class.before)
    )
    try:
        differences.access.extend(islice(unsorted_access_changes(before, after, work), MOST))
        differences.classes.extend(islice(classes, MOST))
        differences.moved.extend(islice(rows_of_moved_requests(world, differences.classes, work), MOST))
    except Exhausted:
        is_whole = False
    is_whole = is_whole and all(len(items) < MOST for items in differences)
    access = list(_of_ready_pods(differences.access, before)) if only_served else differences.access
    # The first row is shown: that of most callers.
    rows = access_rows(world, sorted(access, key=lambda change: ANY_IDENTITY not in change.sources))
    whole = Differences(
        lost=(*(row for row in rows if row.type == "Lost"), *differences.moved),
        gained=tuple(row for row in rows if row.type == "Gained"),
        requests=tuple(request_changes(world, differences.classes)),
        tls=tuple(tls_changes(world)),
        client_certificates=tuple(client_certificate_changes(world)),
        gateways=tuple(gateway_changes(world)),
    )
    return whole, is_whole


def _is_served(treatment: Treatment) -> bool:
    """Return whether some of the requests get an answer other than an error of the proxy."""
    return bool(treatment.redirect) or any(not each.status or each.redirect for each in treatment.receivers)


def _of_ready_pods(changes: Collection[AccessChange], mesh: Mesh) -> Iterator[AccessChange]:
    ready = {endpoint.workload for entry in mesh.endpoints for endpoint in entry.ready} if changes else set()
    yield from (change for change in changes if not ready.isdisjoint(change.workloads))
