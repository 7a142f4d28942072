"""Paths of the Kubernetes API: what a URL points at, and what its query asks for."""

import base64
import binascii
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headgate.api.kinds import by_path
from headgate.api.media import flag
from headgate.api.selectors import Predicate, everything, field_selector, label_selector
from headgate.api.status import ApiError, no_such_path
from headgate.standalone.apiserver.objects import Target, WriteOptions

_LONGEST_MANAGER = 128
_VALIDATIONS = ("Strict", "Warn", "Ignore")


class Place(NamedTuple):
    """A parsed path: an object or a collection of them, and perhaps a subresource."""

    target: Target
    subresource: str = ""


def place(group: str, version: str, parts: list[str]) -> Place:
    """Read what follows the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`. Raises ApiError 404."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) >= 3 and (group, version, parts[2]) in by_path():
        _, namespace, *parts = parts
    served = by_path().get((group, version, parts[0]))
    if served is None or len(parts) > 3 or not all(parts) or (namespace and not served.kind.namespaced):
        raise no_such_path()
    name = parts[1] if len(parts) > 1 else ""
    if name and served.kind.namespaced and not namespace:
        raise no_such_path()
    return Place(Target(served, namespace, name), parts[2] if len(parts) > 2 else "")


def write_options(query: Mapping[str, str], user_agent: str = "") -> WriteOptions:
    """Read `dryRun`, `fieldValidation`, `fieldManager` and `force`. Raises ApiError 400.

    Without `fieldManager`, the client's program is the manager of what it writes.
    """
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        raise ApiError(400, f"fieldValidation must be one of {', '.join(_VALIDATIONS)}, not {validation!r}")
    given = query.get("fieldManager") or ""
    if len(given) > _LONGEST_MANAGER or not given.isprintable():
        raise ApiError(400, f"fieldManager must be at most {_LONGEST_MANAGER} characters that can be printed")
    manager = given or user_agent.partition("/")[0].strip()[:_LONGEST_MANAGER] or "unknown"
    return WriteOptions(
        dry_run=dry_run(query.get("dryRun")), validation=validation, manager=manager, force=flag(query, "force")
    )


def dry_run(value: object) -> bool:
    """Read `dryRun` of a query or of delete options. Raises ApiError 400."""
    if value in (None, "", []):
        return False
    if value not in ("All", ["All"]):
        raise ApiError(400, f"dryRun must be All, not {value!r}")
    return True


def selection(query: Mapping[str, str], target: Target) -> Predicate:
    """Read `labelSelector`, `fieldSelector` and the path's name. Raises ApiError 400."""
    tests = []
    if labels := query.get("labelSelector"):
        tests.append(label_selector(labels))
    if field := query.get("fieldSelector"):
        tests.append(field_selector(field, target.served.kind.kind))
    if name := target.name:
        tests.append(lambda obj: obj["metadata"]["name"] == name)
    return (lambda obj: all(test(obj) for test in tests)) if tests else everything


def number(query: Mapping[str, str], name: str) -> int | None:
    """Read a whole number of 0 or more; None when it is absent or empty. Raises ApiError 400."""
    text = query.get(name, "")
    if text and not (text.isascii() and text.isdecimal()):
        raise ApiError(400, f"{name} must be a whole number, not {text!r}")
    return int(text) if text else None


def check_revision(query: Mapping[str, str], current: int) -> None:
    """Check that a list as of `current` is what was asked for. Raises ApiError 410, 504: only the present is kept."""
    wanted = number(query, "resourceVersion") or current
    if wanted > current:
        raise ApiError(504, f"Too large resource version: {wanted}, current: {current}", reason="Timeout")
    if query.get("resourceVersionMatch") == "Exact" and wanted != current:
        raise ApiError(410, f"only the list of now is kept, of resource version {current}: ask without Exact")


class Continue(msgspec.Struct, frozen=True):
    """Where the next page of a list begins: after this object, as of this revision."""

    revision: int
    namespace: str
    name: str


def continue_token(after: Continue) -> str:
    """Write a token that a client gives back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(after)).decode()


def read_token(text: str) -> Continue:
    """Read a token. Raises ApiError 400."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=Continue)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise ApiError(400, "continue key is not valid: list again from the start") from error
