"""Helpers for tests: decode an object in one call, and an admission step that rejects invalid objects."""

from collections.abc import Callable

from tests.cel_rules import broken_rules

from headgate.admission.injection import Sidecars
from headgate.admission.review import Review, review
from headgate.errors import Cause, DecodeError, Invalid
from headgate.objects.ports import AdmissionStep, View
from headgate.resources import decode as admission
from headgate.resources.meta import Object, Resource


def check(obj: Object, *, request: bool = False) -> admission.Checked:
    """Check an object. An API server must not reject by its rules what admission accepts."""
    found = admission.check(obj, request=request)
    assert found.causes or not (broken := broken_rules(obj)), broken
    return found


def validate(obj: Object) -> tuple[Cause, ...]:
    """Return all structural mistakes of an object; empty if it is valid."""
    return check(obj).causes


def decode(obj: Object) -> Resource:
    """Return the decoded value of an object. Raises DecodeError that lists every mistake."""
    checked = check(obj)
    if checked.value is None:
        raise DecodeError(*checked.causes)
    return checked.value


def admitting(step: AdmissionStep) -> Callable[[Object, Object | None, View], Review]:
    """Return the admission of a store that only does one step."""
    return lambda new, old, view: Review(step(new, old, view))


def completed(sidecars: Sidecars) -> Callable[[Object, Object | None, View], Object]:
    """Return a function that returns an object after its review."""
    return lambda new, old, view: review(new, old, view, sidecars).passed().object


def admit(new: Object, _old: Object | None, _view: object = None) -> Review:
    """Admit an object if it is valid. Raises Invalid that lists every mistake."""
    causes = check(new).causes
    if causes:
        raise Invalid(*causes)
    return Review(new)
