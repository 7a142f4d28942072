"""Objects decoded and checked in one call, for tests that need the value alone, or a store that refuses mistakes."""

from headgate.errors import DecodeError, Invalid
from headgate.resources.decode import check
from headgate.resources.meta import Object, Resource


def decode(obj: Object) -> Resource:
    """Return the value of an object. Raises DecodeError with every mistake."""
    checked = check(obj)
    if checked.value is None:
        raise DecodeError(*checked.causes)
    return checked.value


def admit(new: Object, _old: Object | None, _view: object = None) -> Object:
    """Let an object into a store when it is sound (type `objects.ports.AdmissionStep`). Raises Invalid with every mistake."""
    causes = check(new).causes
    if causes:
        raise Invalid(*causes)
    return new
