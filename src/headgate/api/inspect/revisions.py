"""The resource `revisions`: each change to an object, its writer, and what it did; `revisions/restoration` leads back."""

from headgate.api.inspect.resource import InspectCall, InspectResource, Subresource
from headgate.api.status import ApiError
from headgate.formatting import NONE
from headgate.plane import history
from headgate.resources.meta import since
from headgate.resources.revisions import Revision, RevisionList, RevisionRestoration

_LONGEST_NUMBER = 18  # digits of a number of 64 bits


async def _get(call: InspectCall) -> Revision:
    return history.revision(call.inspector.live_state, number_in(call.path.name), call.path.namespace)


async def _list(call: InspectCall) -> RevisionList:
    """Return the revisions for the parameters `group`, `kind`, `name` and `newest`. Raises ApiError 400."""
    group, kind, name = (call.query.get(field, "") for field in ("group", "kind", "name"))
    query = history.RevisionQuery(call.path.namespace, group, kind, name, _newest(call.query.get("newest", "")))
    return history.revisions(call.inspector.live_state, query)


async def _restoration(call: InspectCall) -> RevisionRestoration:
    return history.restoration(call.inspector.live_state, number_in(call.path.name), call.path.namespace)


def _newest(text: str) -> int:
    return number_in(text or "0", "newest")


def number_in(text: str, field: str = "revision") -> int:
    """Return the number in a text. Raises ApiError 400."""
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        raise ApiError(
            400, f"{field}: Invalid value: {text[:100]!r}: must be a whole number; `headgate history` lists revisions"
        )
    return int(text)


REVISIONS = InspectResource(
    "revisions",
    "Revision",
    Revision,
    get=_get,
    list=_list,
    columns=(
        ("Age", "Time since the change.", lambda revision: since(revision.record_time)),
        (
            "By",
            "The field managers that wrote.",
            lambda revision: ", ".join(sorted({c.by or NONE for c in revision.changes})),
        ),
        (
            "Objects",
            "The changed objects.",
            lambda revision: ", ".join(f"{c.object.kind}/{c.object.name}" for c in revision.changes) or revision.reason,
        ),
        (
            "Effect",
            "What the change did to requests and access.",
            lambda revision: "; ".join(revision.effect_messages) or NONE,
        ),
    ),
    spans_namespaces=True,
    parameters={"group": str, "kind": str, "name": str, "newest": _newest},
    subresources={"restoration": Subresource("RevisionRestoration", RevisionRestoration, get=_restoration)},
)
