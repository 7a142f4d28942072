"""The resource `revisions` of the inspect API: each change of an object, its writer, and what it did."""

from starlette.datastructures import QueryParams

from headgate.api.inspect.query import RESTORATION, InspectPath
from headgate.api.status import ApiError
from headgate.errors import HeadgateError, NotFound
from headgate.plane import history
from headgate.plane.live_state import LiveState
from headgate.resources.revisions import Revision, RevisionList, RevisionRestoration

_LONGEST_NUMBER = 18  # digits of a number of 64 bits


def answer(
    live_state: LiveState, path: InspectPath, query: QueryParams
) -> Revision | RevisionList | RevisionRestoration:
    """Return a revision, the way back to it, or a list for the parameters `group`, `kind`, `name`, `newest`. Raises ApiError."""
    number = number_in(path.name or "0")
    newest = number_in(query.get("newest") or "0", "newest")
    kind = (query.get("group", ""), query.get("kind", ""), query.get("name", ""))
    try:
        if path.subresource == RESTORATION:
            return history.restoration(live_state, number, path.namespace)
        if path.name:
            return history.revision(live_state, number, path.namespace)
        return history.revisions(live_state, history.RevisionQuery(path.namespace, *kind, newest))
    except NotFound as error:
        raise ApiError(404, str(error)) from error
    except HeadgateError as error:
        raise ApiError(503, str(error)) from error


def number_in(text: str, field: str = "revision") -> int:
    """Return the number in a text. Raises ApiError 400."""
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        raise ApiError(
            400, f"{field}: Invalid value: {text[:100]!r}: must be a whole number; `headgate history` lists revisions"
        )
    return int(text)
