"""The schemas of all kinds, as OpenAPI definitions.

A schema has the fields, their types, and the keys of list items. The embedded API publishes the schemas (for
`kubectl explain` and client-side validation), merges objects by them, and checks writes with them. Definitions of
Kubernetes and of the Gateway API are JSON files. SMI's are written in `mesh`: its published CRDs contradict its own
specification (a header filter is a list, weights are fractions), and headgate accepts every shape that is in use (D4).
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import TypeAlias

import msgspec

from headgate.kinds import ACCESS, MESH, SPECS, SPLIT
from headgate.resources.definitions import mesh
from headgate.resources.definitions.canary import canary
from headgate.resources.definitions.gateway_api import gateway_api
from headgate.resources.definitions.schema_builders import CONDITION, META, REF, SELECTOR, Schema
from headgate.resources.registry import ROUTE_GROUP, TCP_ROUTE, TRAFFIC_SPLIT, TRAFFIC_TARGET, UDP_ROUTE

GroupVersionKind: TypeAlias = tuple[str, str, str]

_GVK = "x-kubernetes-group-version-kind"
_WITH_DEFINITION = ("items", "additionalProperties")


def _mesh() -> dict[str, Schema]:
    """Return the definitions of SMI's and headgate's kinds by name."""
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
    kinds[MESH, "v1beta1", "Sidecar"] = mesh.sidecar()
    kinds |= {(group, "v1beta1", "Canary"): canary() for group in (MESH, "")}
    return {
        definition_name(*gvk): {**schema, _GVK: [dict(zip(("group", "version", "kind"), gvk, strict=True))]}
        for gvk, schema in kinds.items()
    }


def definition_name(group: str, version: str, kind: str) -> str:
    """Return the name of a mesh kind's definition.

    It begins with the reversed group, as in Kubernetes' OpenAPI documents.
    """
    return ".".join([*reversed((group or "mesh").split(".")), version, kind])


@functools.cache
def definitions() -> Mapping[str, Schema]:
    """Return all definitions by name. A `$ref` refers to another name of the same mapping."""
    core = msgspec.json.decode(resources.files("headgate.resources").joinpath("schemas/core.json").read_bytes())
    described = {META + "Condition": CONDITION, META + "LabelSelector": {**core[META + "LabelSelector"], **SELECTOR}}
    return {**core, **described, **gateway_api(), **_mesh()}


@functools.cache
def names() -> Mapping[GroupVersionKind, str]:
    """Return the names of definitions by (group, version, kind)."""
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions().items()
        for gvk in schema.get(_GVK, ())
    }


@functools.cache
def schemas() -> Mapping[GroupVersionKind, Schema]:
    """Return the schemas by (group, version, kind), with each `$ref` replaced by the schema that it refers to."""
    linked: dict[str, Schema] = {}
    return {gvk: _linked({"$ref": REF + name}, linked) for gvk, name in names().items()}


def _linked(part: Schema, done: dict[str, Schema]) -> Schema:
    """Return a schema with each `$ref` replaced by its definition.

    Fields beside a `$ref` override those of the definition.
    """
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
