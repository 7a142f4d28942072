"""Choose the sessions at each backend of a split, by the policies of the Services that are called (GEP-1619)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.requests import NO_FILTERS
from headgate.model.routing import Mesh, Route, Split, Target
from headgate.model.sessions import PersistentSession
from headgate.resources.meta import Key

S = TypeVar("S")


class SplitSessions(NamedTuple):
    """The sessions at each target of a split, and the Services (`namespace/name`) whose sessions proxies can't keep."""

    by_target: tuple[PersistentSession | None, ...]
    lost: frozenset[str] = frozenset()


def callees(target: Target, called: str = "") -> tuple[str, ...]:
    """Return the Services (`namespace/name`) that the requests to a target may call, its own Service first.

    All requests of the table of a Service call this Service, `called`. A rule names Services itself.
    """
    own = target.ref.service
    if called or not target.policy_roots:
        return (called or target.root or own,)
    return tuple(sorted(target.policy_roots, key=lambda name: (name != own, name)))


def first_of(settings: Mapping[str, S], services: Iterable[str]) -> S | None:
    """Return the settings of the first Service that has some."""
    return next((settings[name] for name in services if name in settings), None)


def split_sessions(split: Split, sessions: Mapping[str, PersistentSession], called: str = "") -> SplitSessions:
    """Return the sessions of a split by those of Services. Sticky users take precedence over them.

    If several targets have the sessions of one Service, and the split more targets or filters, each target has a cluster and a
    cookie of its own. Headers don't work so: a client knows only one name.
    """
    if split.sticky or not sessions:
        return SplitSessions((None,) * len(split.targets))
    chosen = [first_of(sessions, callees(target, called)) for target in split.targets]
    apart = len({*chosen}) > 1 or is_divided(split)
    lost = {
        session.service
        for session in chosen
        if session and session.kind == "header" and apart and chosen.count(session) > 1
    }
    return SplitSessions(
        tuple(None if session and session.service in lost else session for session in chosen), frozenset(lost)
    )


def is_divided(split: Split) -> bool:
    """Return whether the backends of a split have filters of their own. A backend of a rule can be the root of a split."""
    return len(split.targets) > 1 and any(target.filters != NO_FILTERS for target in split.targets)


def unkept_headers(before: Mesh, mesh: Mesh) -> Iterator[Finding]:
    """Yield a finding for each rule whose sessions by a header ended when its Services got their settings."""
    if mesh is before:
        return
    rules: dict[tuple[Key, str], None] = {}
    for route, changed in zip(_requests(before), _requests(mesh), strict=True):
        if route.session and not changed.session and route.origin:
            rules[route.origin, route.name] = None
    for origin, name in rules:
        message = (
            "backends with different headgate.dev annotations or retry budgets keep no sessions by a header, and each request "
            "goes to a backend by weight; use the type Cookie, or give the Services the same ones"
        )
        yield Finding(origin, Reason.FIELD_IGNORED, f"spec.rules[{name}].sessionPersistence.type", message)


def _requests(mesh: Mesh) -> Iterator[Route]:
    """Yield the routes of requests, in the order of a mesh."""
    for table in mesh.all_tables:
        yield from table.routes
    for port in mesh.gateways:
        for host in sorted(port.hosts):
            yield from port.hosts[host].routes
