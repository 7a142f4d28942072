"""The schemas of all kinds, as OpenAPI definitions: the mesh's own are written here, Kubernetes' own are read from a file.

A schema says which fields exist, their types, and what tells the items of a list apart. The embedded API publishes the
schemas (explain, client-side checks) and checks what is written with them.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import TypeAlias

import msgspec

from headgate.resources import crd_access, crd_gateway, crd_routes
from headgate.resources.registry import (
    ACCESS,
    GATEWAY,
    KINDS,
    MESH,
    ROUTE_GROUP,
    SPECS,
    SPLIT,
    TCP_ROUTE,
    TRAFFIC_TARGET,
    UDP_ROUTE,
)
from headgate.resources.schema_parts import CONDITIONS, REF, Schema, choice, kind, listing, record, text, whole
from headgate.resources.smi import METHODS

__all__ = ["REF", "GroupVersionKind", "Schema", "definition_name", "definitions", "names", "resolved", "schema"]

GroupVersionKind: TypeAlias = tuple[str, str, str]

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_GVK = "x-kubernetes-group-version-kind"
_GATEWAY_API = {
    "GatewayClass": crd_gateway.gateway_class,
    "Gateway": crd_gateway.gateway,
    "HTTPRoute": crd_routes.http_route,
    "GRPCRoute": crd_routes.grpc_route,
    "TCPRoute": crd_routes.tcp_route,
    "ReferenceGrant": crd_gateway.reference_grant,
}


def _quantity(description: str) -> Schema:
    return {"$ref": REF + QUANTITY, "description": description}


_SPLIT_STATUS = record(
    "What became of the split. Only the control plane writes it.",
    observedGeneration=whole("The metadata.generation that the status is about."),
    conditions=CONDITIONS,
    ports=listing(
        "The effect on each port of the root Service.",
        record(
            "One port of the root Service.",
            "port",
            port=whole("The port's number."),
            backends=listing(
                "Who shares the port's traffic, and who was left out.",
                record(
                    "One backend at this port.",
                    "service",
                    service=text("The Service."),
                    weight=whole("The weight in force; 0 for a backend that is left out."),
                    percent=text("The share of requests in percent, for example 33.3%."),
                    endpoints=whole("How many endpoints are ready to serve."),
                    reason=text("Why the backend is left out; absent for one that takes part."),
                ),
                key="service",
            ),
        ),
        key="port",
    ),
    proxies=record(
        "How far the split has come.",
        programmed=whole("How many proxies confirmed it."),
        total=whole("How many proxies must hold it."),
    ),
)
_MATCHES = listing(
    "Only requests that match one of these groups are split; the others go to the root Service itself.",
    record(
        "Names a group of matches.",
        "kind name",
        apiGroup=text("The API group of the kind; specs.smi-spec.io when absent."),
        kind=text("The kind: HTTPRouteGroup."),
        name=text("The name, in the split's own namespace."),
    ),
    key="kind name",
)


def _split(version: str) -> Schema:
    quantities = version in ("v1alpha1", "v1beta1")
    weight = "The relative share of the root's traffic; 0 for none. Shares need not add up to 100."
    spec = {
        "service": text("The root: the Service that clients call, as a short name or a full domain name."),
        "backends": listing(
            "The Services that share the root's traffic.",
            record(
                "One Service and its share.",
                "service weight",
                service=text("The Service; name.namespace when it is in another namespace that grants this."),
                weight=_quantity(f"{weight} A quantity: 1 is 1000m.") if quantities else whole(weight, minimum=0),
            ),
            key="service",
        ),
    }
    if version in ("v1alpha3", "v1alpha4"):
        spec["matches"] = _MATCHES
    return kind(
        "Shares the traffic of a root Service between backend Services by weight.",
        spec=record("What is wanted.", "service backends", **spec),
        status=_SPLIT_STATUS,
    )


def _route_group() -> Schema:
    """Return one schema for all four shapes of D4: `matches` under `spec` or at top level, headers as a map or a list."""
    regex = "RE2 expressions by header name, as a map or a list of maps; each must fit the whole value."
    match = record(
        "Requests: everything that is given must fit.",
        "name",
        name=text("The match's name, another for each match."),
        methods=listing("The methods; all when absent, or with *.", choice("A method.", " ".join(METHODS))),
        pathRegex=text("An RE2 expression for the path, anchored at its start."),
        headers={"description": regex, "x-kubernetes-preserve-unknown-fields": True},
    )
    matches = listing("A request belongs to the group when it fits one of these.", match, key="name", minItems=1)
    return kind(
        "Names requests, for splits and access rules.",
        "",
        spec=record("What is wanted.", matches=matches),
        matches=matches,
        status=record("What became of the group. Only the control plane writes it.", conditions=CONDITIONS),
    )


def _mesh() -> dict[str, Schema]:
    kinds: dict[GroupVersionKind, Schema] = {
        (SPLIT, version, "TrafficSplit"): _split(version)
        for version in ("v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4")
    }
    kinds["", "v1beta1", "TrafficSplit"] = _split("v1beta1")
    kinds |= {(SPECS, version, "HTTPRouteGroup"): _route_group() for version in ROUTE_GROUP.versions}
    kinds |= _access()
    kinds |= {
        (GATEWAY, version, found.kind): _GATEWAY_API[found.kind]()
        for found in KINDS
        if found.kind in _GATEWAY_API and found.group == GATEWAY
        for version in found.versions
    }
    return {
        definition_name(*gvk): {**schema, _GVK: [dict(zip(("group", "version", "kind"), gvk, strict=True))]}
        for gvk, schema in kinds.items()
    }


def _access() -> dict[GroupVersionKind, Schema]:
    kinds = {
        (ACCESS, version, "TrafficTarget"): crd_access.traffic_target(version) for version in TRAFFIC_TARGET.versions
    }
    for route in (TCP_ROUTE, UDP_ROUTE):
        protocol = route.kind.removesuffix("Route")
        kinds |= {(SPECS, version, route.kind): crd_access.port_route(protocol, version) for version in route.versions}
    kinds[MESH, "v1beta1", "TLSConfig"] = crd_access.tls_config(bare=False)
    kinds["", "v1beta1", "TLSConfig"] = crd_access.tls_config(bare=True)
    return kinds


def definition_name(group: str, version: str, kind: str) -> str:
    """Name the definition of a mesh kind: the group's domain reversed, as OpenAPI documents of Kubernetes have it."""
    return ".".join([*reversed((group or "mesh").split(".")), version, kind])


@functools.cache
def definitions() -> Mapping[str, Schema]:
    """Return every definition by name; `$ref` values point at other names of the same mapping."""
    core = resources.files("headgate.resources").joinpath("schemas/core.json").read_bytes()
    return {**msgspec.json.decode(core), **_mesh()}


@functools.cache
def names() -> Mapping[GroupVersionKind, str]:
    """Return the definition's name of every (group, version, kind) that has a schema."""
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions().items()
        for gvk in schema.get(_GVK, ())
    }


def schema(group: str, version: str, kind: str) -> Schema:
    """Return the schema of a kind in one version; an empty one, which allows everything, for a kind without."""
    name = names().get((group, version, kind))
    return definitions()[name] if name else {}


def resolved(part: Schema) -> Schema:
    """Follow a `$ref`; the fields beside it (description, list keys) come first."""
    ref = part.get("$ref")
    if ref is None:
        return part
    return {**definitions()[ref.removeprefix(REF)], **{key: value for key, value in part.items() if key != "$ref"}}
