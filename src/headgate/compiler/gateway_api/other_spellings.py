"""Keep requests from passing an authorization server by another spelling of their path."""

from collections.abc import Iterable, Iterator

from headgate.model.ambiguous_paths import OTHER_SPELLING
from headgate.model.requests import Match, Path
from headgate.model.routing import Broken, Route, Split

AMBIGUOUS = "AmbiguousPath"
_BAD_REQUEST = 400
_REFUSED = Match(path=Path(kind="regex", value=OTHER_SPELLING))


def without_other_spellings(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Return the routes of a host or a Service port, after one for ambiguous paths if rules differ in their authorization.

    Proxies match paths as they are written: `//admin` is not below `/admin`. A backend may read both as the same path.
    The route belongs to the first rule that needs permission; its requests get 400.
    """
    listed = tuple(routes)
    if len({(route.needs_permission, route.external_auth) for route in listed}) < 2:
        return listed
    return (*_refusing(listed), *listed)


def _refusing(routes: Iterable[Route]) -> Iterator[Route]:
    rule = next(route for route in routes if route.needs_permission)
    answer = Broken(weight=1, reason=AMBIGUOUS, status=_BAD_REQUEST)
    yield Route(name=rule.name, origin=rule.origin, match=_REFUSED, split=Split(targets=(), broken=(answer,)))
