"""From an object as the user wrote it to the typed value that the compiler reads, or to all that is wrong with it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from headgate.errors import Cause, DecodeError
from headgate.kinds import ACCESS, GATEWAY, MESH, SPECS, SPLIT
from headgate.resources.checks import access, core, gateways, pods, routes
from headgate.resources.checks.route_groups import route_group_causes
from headgate.resources.checks.schema import check_schema
from headgate.resources.checks.splits import split_causes
from headgate.resources.definitions.catalog import schemas
from headgate.resources.meta import Object, Resource, metadata_causes
from headgate.resources.registry import (
    ROUTE_GROUP,
    SERVICE,
    TCP_ROUTE,
    TLS_CONFIG,
    TRAFFIC_SPLIT,
    TRAFFIC_TARGET,
    UDP_ROUTE,
    Kind,
    api_version,
    find_written,
    split_api_version,
)
from headgate.resources.versions import kind_written, to_hub, with_metadata_name

T = TypeVar("T")
_PLACE = re.compile(r"(?P<message>.*?)(?: - at `(?:key in )?\$\.?(?P<field>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WRONG = re.compile(r"Expected `(.*?)`(.*?), got `(.*?)`")
_WORDS = {
    "int": "a whole number",
    "float": "a fraction",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_CHECKS: Mapping[tuple[str, str], Callable[[Object], Iterator[Cause]]] = {
    (SPLIT, "TrafficSplit"): split_causes,
    (SPECS, "HTTPRouteGroup"): route_group_causes,
    (SPECS, "TCPRoute"): access.port_route_causes,
    (SPECS, "UDPRoute"): access.port_route_causes,
    (ACCESS, "TrafficTarget"): access.target_causes,
    (MESH, "TLSConfig"): access.tls_config_causes,
    (GATEWAY, "Gateway"): gateways.gateway_causes,
    (GATEWAY, "HTTPRoute"): routes.http_route_causes,
    (GATEWAY, "GRPCRoute"): routes.grpc_route_causes,
    (GATEWAY, "TCPRoute"): routes.tcp_route_causes,
    (GATEWAY, "ReferenceGrant"): gateways.grant_causes,
    ("", "ConfigMap"): core.config_map_causes,
    ("", "Namespace"): pods.namespace_causes,
    ("", "Pod"): pods.pod_causes,
    ("", "Secret"): core.secret_causes,
    ("", "Service"): core.service_causes,
    ("apps", "Deployment"): pods.template_causes,
    ("apps", "ReplicaSet"): pods.template_causes,
    ("discovery.k8s.io", "EndpointSlice"): core.slice_causes,
}
_UNREAD: Mapping[tuple[str, str], re.Pattern[str]] = {
    (GATEWAY, "Gateway"): re.compile(r"spec\.(tls|allowedListeners)\b.*"),
    (GATEWAY, "HTTPRoute"): re.compile(r"spec\.rules\[\d+\]\.retry\b.*"),
}
"""Fields that headgate does not read. Before their schemas were published, any content could be stored in them."""
_UNVERSIONED: Mapping[str, Kind] = {
    kind.kind: kind for kind in (TRAFFIC_SPLIT, ROUTE_GROUP, TCP_ROUTE, UDP_ROUTE, TRAFFIC_TARGET, TLS_CONFIG, SERVICE)
}
"""Kinds that the specifications write without a version (000, 001, 003; D27). A TCPRoute is SMI's."""
TOP_LEVEL = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
"""Fields that every object may have: a kind without a status ignores it."""


class Checked(NamedTuple):
    """An object after its checks: sound when there are no causes.

    `hub` is the object in the version of the store and `value` its decoded form; both are None when there are causes (but see
    `check_stored`), and `value` also for a kind of which headgate reads nothing. `unknown` are the paths of fields that the
    schema does not have.
    """

    causes: tuple[Cause, ...]
    hub: Object | None = None
    value: Resource | None = None
    unknown: Sequence[str] = ()


class Check(Protocol):
    """The type of `check`, for those who add to it."""

    def __call__(self, obj: Object, *, request: bool = False) -> Checked: ...


def check(obj: Object, *, request: bool = False) -> Checked:
    """Validate and decode an object in the version that it is written in: the one way in for every object.

    Every structural mistake comes at once. References to what does not exist are no mistakes: the order of creation is
    free (R22). Unknown fields are mistakes in kinds of the mesh, and ignored in Kubernetes' own. With `request`, an
    unknown field is none: `hub` is without those of the mesh's kinds, as a Kubernetes API server stores it. Then the types
    in `metadata` and `status` count too.
    """
    try:
        kind = kind_written(obj)
    except DecodeError as error:
        return Checked(error.causes)
    skipped = () if request else ("metadata", "status")
    schema = schemas()[*split_api_version(obj["apiVersion"]), kind.kind]
    examined = check_schema(obj, schema, required=kind.is_custom, skipped=skipped)
    tolerated = (
        examined.unknown if request or not kind.is_custom else [at for at in examined.unknown if at in TOP_LEVEL]
    )
    if request and kind.is_custom:
        obj = examined.value
    checks = _CHECKS.get((kind.group, kind.kind))
    general, special = tuple(metadata_causes(obj)), tuple(checks(obj) if checks else ())
    named = {cause.field for cause in (*general, *special)}.union(tolerated)
    causes = (*general, *(cause for cause in examined.causes if cause.field not in named), *special)
    if causes:
        return Checked(causes, unknown=examined.unknown)
    try:
        hub = to_hub(obj)
        return Checked((), hub, read(hub, kind.shape) if kind.shape else None, examined.unknown)
    except DecodeError as error:  # damaged conversion annotations, fields that no check looks at
        return Checked(error.causes, unknown=examined.unknown)


def check_stored(obj: Object) -> Checked:
    """Check an object that is stored: it can be used in spite of mistakes in fields that headgate does not read."""
    found = check(obj)
    kind = find_written(obj["apiVersion"], obj["kind"])
    unread = _UNREAD.get((kind.group, kind.kind)) if kind else None
    if not kind or not kind.shape or not unread or not all(unread.fullmatch(cause.field) for cause in found.causes):
        return found
    hub = to_hub(obj)
    return found._replace(hub=hub, value=read(hub, kind.shape))


def validate(obj: Object) -> tuple[Cause, ...]:
    """Return every structural mistake of an object at once; empty when it is sound."""
    return check(obj).causes


def with_api_version(obj: Object) -> Object:
    """Return an object without `apiVersion` in the newest version whose shape it has; the newest of all if it has none.

    Every other object comes back as it is: one with an `apiVersion`, or of a kind that the specifications write with it.
    Only files are read this way; the API refuses such objects, as kubectl does.
    """
    kind = _UNVERSIONED.get(str(obj.get("kind")))
    if obj.get("apiVersion") or kind is None:
        return obj
    newest, *older = ({**obj, "apiVersion": api_version(*version)} for version in kind.served_versions)
    return next((item for item in (newest, *older) if not validate(with_metadata_name(item))), newest)


def read(hub: Object, shape: type[T]) -> T:
    """Return what `shape` names of an object in hub version. Raises DecodeError with the user's field paths."""
    try:
        return msgspec.convert(hub, shape, strict=True)
    except msgspec.ValidationError as first:
        try:
            return msgspec.convert(without_nulls(hub), shape, strict=True)  # `labels:` with nothing behind it
        except msgspec.ValidationError as error:
            raise DecodeError(_cause(str(error))) from first


def without_nulls(value: Any) -> Any:
    """Return the value without fields that are null: to Kubernetes these are absent."""
    if isinstance(value, Mapping):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(inner) for inner in value]
    return value


def _cause(text: str) -> Cause:
    """Return a decoder's message in the user's words: `spec.backends[0].weight: must be a whole number, not text`."""
    found = _PLACE.fullmatch(text)
    field = (found["field"] or "" if found else "").replace("[...]", "")
    message = found["message"] if found else text
    if missing := _MISSING.fullmatch(message):
        return Cause(f"{field}.{missing[1]}" if field else missing[1], "is missing")
    if wrong := _WRONG.fullmatch(message):
        wanted = " or ".join(_WORDS.get(word, word) for word in wrong[1].split(" | "))
        return Cause(field, f"must be {wanted}{wrong[2]}, not {_WORDS.get(wrong[3], wrong[3])}")
    return Cause(field, message)
