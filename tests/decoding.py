"""Helpers for tests: decode an object in one call, and an admission step that rejects invalid objects."""

from headgate.errors import DecodeError, Invalid
from headgate.resources.decode import check
from headgate.resources.meta import Object, Resource


def decode(obj: Object) -> Resource:
    """Return the decoded value of an object. Raises DecodeError that lists every mistake."""
    checked = check(obj)
    if checked.value is None:
        raise DecodeError(*checked.causes)
    return checked.value


def admit(new: Object, _old: Object | None, _view: object = None) -> Object:
    """Admit an object if it is valid (an `objects.ports.AdmissionStep`). Raises Invalid that lists every mistake."""
    causes = check(new).causes
    if causes:
        raise Invalid(*causes)
    return new
