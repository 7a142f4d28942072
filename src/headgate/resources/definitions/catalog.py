"""The schemas of all kinds, as OpenAPI definitions.

A schema says which fields exist, their types, and what tells the items of a list apart. The embedded API publishes the
schemas (explain, client-side checks), merges by them, and checks what is written with them. Definitions of Kubernetes and
of the Gateway API are data. SMI's are written here: its published CRDs contradict its own specification (a header filter
is a list there, weights are fractions), and headgate takes every shape that is in use (D4).
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import TypeAlias

import msgspec

from headgate.kinds import ACCESS, MESH, SPECS, SPLIT
from headgate.resources.definitions import mesh
from headgate.resources.definitions.gateway_api import gateway_api
from headgate.resources.definitions.schema_builders import CONDITION, META, REF, SELECTOR, Schema
from headgate.resources.registry import ROUTE_GROUP, TCP_ROUTE, TRAFFIC_SPLIT, TRAFFIC_TARGET, UDP_ROUTE

GroupVersionKind: TypeAlias = tuple[str, str, str]

_GVK = "x-kubernetes-group-version-kind"
_WITH_DEFINITION = ("items", "additionalProperties")


def _mesh() -> dict[str, Schema]:
    """Return the definitions of the kinds of SMI and of headgate."""
    kinds: dict[GroupVersionKind, Schema] = {
        (SPLIT, version, "TrafficSplit"): mesh.traffic_split(version) for version in TRAFFIC_SPLIT.versions
    }
    kinds["", "v1beta1", "TrafficSplit"] = mesh.traffic_split("v1beta1")
    kinds |= {(SPECS, version, "HTTPRouteGroup"): mesh.route_group() for version in ROUTE_GROUP.versions}
    kinds |= {(ACCESS, version, "TrafficTarget"): mesh.traffic_target(version) for version in TRAFFIC_TARGET.versions}
    for route in (TCP_ROUTE, UDP_ROUTE):
        protocol = route.kind.removesuffix("Route")
        kinds |= {(SPECS, version, route.kind): mesh.port_route(protocol, version) for version in route.versions}
    kinds[MESH, "v1beta1", "TLSConfig"] = mesh.tls_config(bare=False)
    kinds["", "v1beta1", "TLSConfig"] = mesh.tls_config(bare=True)
    return {
        definition_name(*gvk): {**schema, _GVK: [dict(zip(("group", "version", "kind"), gvk, strict=True))]}
        for gvk, schema in kinds.items()
    }


def definition_name(group: str, version: str, kind: str) -> str:
    """Name the definition of a mesh kind: the group's domain reversed, as OpenAPI documents of Kubernetes have it."""
    return ".".join([*reversed((group or "mesh").split(".")), version, kind])


@functools.cache
def definitions() -> Mapping[str, Schema]:
    """Return every definition by name; `$ref` values point at other names of the same mapping."""
    core = msgspec.json.decode(resources.files("headgate.resources").joinpath("schemas/core.json").read_bytes())
    described = {META + "Condition": CONDITION, META + "LabelSelector": {**core[META + "LabelSelector"], **SELECTOR}}
    return {**core, **described, **gateway_api(), **_mesh()}


@functools.cache
def names() -> Mapping[GroupVersionKind, str]:
    """Return the definition's name of every (group, version, kind) that has a schema."""
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions().items()
        for gvk in schema.get(_GVK, ())
    }


@functools.cache
def schemas() -> Mapping[GroupVersionKind, Schema]:
    """Return the schema of every (group, version, kind) that has one, without `$ref`."""
    linked: dict[str, Schema] = {}
    return {gvk: _linked({"$ref": REF + name}, linked) for gvk, name in names().items()}


def _linked(part: Schema, done: dict[str, Schema]) -> Schema:
    """Return a schema with what each `$ref` points at in its place; the fields beside it (description) come first."""
    linked = {key: value for key, value in part.items() if key != "$ref"}
    if "properties" in part:
        linked["properties"] = {field: _linked(inner, done) for field, inner in part["properties"].items()}
    linked |= {key: _linked(part[key], done) for key in _WITH_DEFINITION if isinstance(part.get(key), Mapping)}
    if "$ref" not in part:
        return linked
    name = part["$ref"].removeprefix(REF)
    if name not in done:
        done[name] = _linked(definitions()[name], done)
    return {**done[name], **linked}
