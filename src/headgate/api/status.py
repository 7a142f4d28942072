"""Errors in the form of the Kubernetes API: a `Status` object with code, reason, message and causes."""

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
    TooLarge,
    Unavailable,
)
from headgate.merge.server_side_apply import ApplyConflicts
from headgate.resources.kind import ServedKind
from headgate.resources.meta import Key

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
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "ServiceUnavailable",
}
_CODES: Mapping[type[StoreError], int] = {
    NotFound: 404,
    AlreadyExists: 409,
    Conflict: 409,
    Gone: 410,
    TooLarge: 413,
    Unavailable: 503,
}


class ApiError(HeadgateError):
    """An error response. `code` is the HTTP status code; `reason` and `details` are fields of the Status."""

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
    """Return the error for a path that the server does not have: 404."""
    return ApiError(404, "the server could not find the requested resource")


def method_not_allowed(hint: str = "") -> ApiError:
    """Return the error for a method that a path does not support: 405, with what to do instead as `hint`."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, f"{message}; {hint}" if hint else message)


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> str:
    """Return the API server's message for a value that is not one of the supported values."""
    listed = ", ".join(f'"{choice}"' for choice in supported)
    return f'{field}: Unsupported value: "{value}": supported values: {listed}'


def not_found(plural: str, group: str, name: str) -> ApiError:
    """Return the error for an object that does not exist: 404."""
    return ApiError(404, f'{plural}.{group} "{name}" not found', details={"name": name, "group": group, "kind": plural})


def invalid(served: ServedKind, name: str, causes: Sequence[Cause]) -> ApiError:
    """Return the error for an invalid object of a served kind."""
    return invalid_object(Key(served.group, served.kind.kind, "", name), causes)


def invalid_object(key: Key, causes: Sequence[Cause]) -> ApiError:
    """Return the error for an invalid object: 422 with a cause for each field. kubectl prints the kind and name of `key`."""
    qualified = f"{key.kind}.{key.group}" if key.group else key.kind
    listed = ", ".join(map(str, causes))
    text = listed if len(causes) == 1 else f"[{listed}]"
    return ApiError(
        422,
        f'{qualified} "{key.name}" is invalid: {text}',
        details={
            **_details(key.group, key.kind, key.name),
            "causes": [
                {"reason": "FieldValueInvalid", "message": cause.message, "field": cause.field} for cause in causes
            ],
        },
    )


def apply_conflict(error: ApplyConflicts) -> ApiError:
    """Return the error for an apply that conflicts with other field managers: 409 with a cause for each field."""
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
    """Convert an error of the store or of decoding to an ApiError."""
    if isinstance(error, Invalid | DecodeError):
        return invalid(served, name, error.causes)
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 500)
    reason = "AlreadyExists" if isinstance(error, AlreadyExists) else ""
    details = _details(served.group, served.plural, name) if code != 500 else {}
    return ApiError(code, str(error), reason=reason, details=details)


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}
