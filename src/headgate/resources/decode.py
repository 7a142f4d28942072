"""From an object as the user wrote it to the typed value that the compiler reads, or to all that is wrong with it."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from headgate.errors import Cause, DecodeError, Invalid
from headgate.resources.access_checks import port_route_causes, target_causes
from headgate.resources.checks import common_causes
from headgate.resources.core_checks import (
    config_map_causes,
    grant_causes,
    secret_causes,
    service_causes,
    slice_causes,
)
from headgate.resources.gateway_checks import gateway_causes, gateway_class_causes
from headgate.resources.meta import Object, Resource
from headgate.resources.pod_checks import namespace_causes, pod_causes, template_causes
from headgate.resources.registry import ACCESS, GATEWAY, MESH, SPECS, SPLIT
from headgate.resources.route_checks import grpc_route_causes, http_route_causes, tcp_route_causes
from headgate.resources.route_group_checks import route_group_causes
from headgate.resources.split_checks import split_causes
from headgate.resources.tls_config_checks import tls_config_causes
from headgate.resources.versions import kind_written, to_hub

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
    (SPECS, "TCPRoute"): port_route_causes,
    (SPECS, "UDPRoute"): port_route_causes,
    (ACCESS, "TrafficTarget"): target_causes,
    (MESH, "TLSConfig"): tls_config_causes,
    (GATEWAY, "GatewayClass"): gateway_class_causes,
    (GATEWAY, "Gateway"): gateway_causes,
    (GATEWAY, "HTTPRoute"): http_route_causes,
    (GATEWAY, "GRPCRoute"): grpc_route_causes,
    (GATEWAY, "TCPRoute"): tcp_route_causes,
    (GATEWAY, "ReferenceGrant"): grant_causes,
    ("", "ConfigMap"): config_map_causes,
    ("", "Namespace"): namespace_causes,
    ("", "Pod"): pod_causes,
    ("", "Secret"): secret_causes,
    ("", "Service"): service_causes,
    ("apps", "Deployment"): template_causes,
    ("apps", "ReplicaSet"): template_causes,
    ("discovery.k8s.io", "EndpointSlice"): slice_causes,
}


def decode(obj: Object) -> Resource:
    """Return an object of any version as the typed value of its kind. Raises DecodeError with the user's field paths."""
    kind = kind_written(obj)
    if kind.shape is None:
        raise DecodeError(Cause("kind", f"{kind.kind} has no fields that headgate reads"))
    return read(to_hub(obj), kind.shape)


def read(hub: Object, shape: type[T]) -> T:
    """Return what `shape` names of an object in hub version. Raises DecodeError with the user's field paths."""
    try:
        return msgspec.convert(hub, shape, strict=True)
    except msgspec.ValidationError as first:
        try:
            return msgspec.convert(without_nulls(hub), shape, strict=True)  # `labels:` with nothing behind it
        except msgspec.ValidationError as error:
            raise DecodeError(_cause(str(error))) from first


def validate(obj: Object) -> tuple[Cause, ...]:
    """Return every structural mistake of an object at once, in the version that it is written in; empty when sound.

    References to what does not exist are no mistakes here: the order of creation is free (R22).
    """
    try:
        kind = kind_written(obj)
    except DecodeError as error:
        return error.causes
    causes = tuple(_CHECKS.get((kind.group, kind.kind), common_causes)(obj))
    return causes if causes or kind.shape is None else _undecodable(obj)


def _undecodable(obj: Object) -> tuple[Cause, ...]:
    """Return what stops a sound object from being read: damaged conversion annotations, fields no check looks at."""
    try:
        decode(obj)
    except DecodeError as error:
        return error.causes
    return ()


def admit(new: Object, _old: Object | None) -> Object:
    """Let an object into the store when it is sound (type `store.base.Admit`). Raises Invalid with every mistake."""
    causes = validate(new)
    if causes:
        raise Invalid(*causes)
    return new


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
