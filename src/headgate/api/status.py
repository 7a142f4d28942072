"""Errors as the Kubernetes API writes them: a `Status` object with code, reason, message and field paths."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    DecodeError,
    Gone,
    HeadgateError,
    Invalid,
    NotFound,
    StoreError,
    Unavailable,
)
from headgate.merge.server_side_apply import ApplyConflicts
from headgate.resources.registry import ServedKind

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
    501: "NotImplemented",
    503: "ServiceUnavailable",
}
_CODES: Mapping[type[StoreError], int] = {NotFound: 404, AlreadyExists: 409, Conflict: 409, Gone: 410, Unavailable: 503}


class ApiError(HeadgateError):
    """A request that can't be answered as asked. `code` is the HTTP status, `details` goes into the Status."""

    def __init__(self, code: int, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.details = dict(details or {})

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def no_such_path() -> ApiError:
    """Answer for a path where nothing is served."""
    return ApiError(404, "the server could not find the requested resource")


def not_found(plural: str, group: str, name: str) -> ApiError:
    """Answer for an object that does not exist."""
    return ApiError(404, f'{plural}.{group} "{name}" not found', details={"name": name, "group": group, "kind": plural})


def invalid(served: ServedKind, name: str, causes: Sequence[Cause]) -> ApiError:
    """Answer for an object that breaks rules: 422 with the path of each field."""
    who = f"{served.kind.kind}.{served.group}" if served.group else served.kind.kind
    listed = ", ".join(map(str, causes))
    text = listed if len(causes) == 1 else f"[{listed}]"
    return ApiError(
        422,
        f'{who} "{name}" is invalid: {text}',
        details={
            **_details(served, name, kind=served.kind.kind),
            "causes": [
                {"reason": "FieldValueInvalid", "message": cause.message, "field": cause.field} for cause in causes
            ],
        },
    )


def apply_conflict(error: ApplyConflicts) -> ApiError:
    """Answer for an apply that would change fields of other managers: 409 with each field and its manager."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {conflict.owner_name}", "field": conflict.field}
        for conflict in error.conflicts
    ]
    first, *more = error.conflicts
    if not more:
        text = f"Apply failed with 1 conflict: conflict with {first.owner_name}: {first.field}"
    else:
        fields: dict[str, list[str]] = {}
        for conflict in error.conflicts:
            fields.setdefault(conflict.owner_name, []).append(f"- {conflict.field}")
        lines = [line for owner, listed in fields.items() for line in (f"conflicts with {owner}:", *listed)]
        listing = "\n".join(lines)
        text = f"Apply failed with {len(error.conflicts)} conflicts: {listing}"
    return ApiError(409, text, details={"causes": causes})


def from_error(error: StoreError | DecodeError, served: ServedKind, name: str) -> ApiError:
    """Translate what the store or a decoder says about an object."""
    if isinstance(error, Invalid | DecodeError):
        return invalid(served, name, error.causes)
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 500)
    reason = "AlreadyExists" if isinstance(error, AlreadyExists) else ""
    details = _details(served, name, kind=served.plural) if code != 500 else {}
    return ApiError(code, str(error), reason=reason, details=details)


def _details(served: ServedKind, name: str, *, kind: str) -> dict[str, Any]:
    details = {"name": name, "group": served.group, "kind": kind}
    return {key: value for key, value in details.items() if value}
