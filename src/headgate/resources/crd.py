"""The schemas of all kinds, as OpenAPI definitions: the mesh's own are written here, Kubernetes' own are read from a file.

A schema says which fields exist, their types, and what tells the items of a list apart. The embedded API publishes the
schemas (explain, client-side checks) and checks what is written with them.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from headgate.resources.registry import GATEWAY, KINDS, SPLIT

Schema: TypeAlias = Mapping[str, Any]
GroupVersionKind: TypeAlias = tuple[str, str, str]

REF = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_GVK = "x-kubernetes-group-version-kind"


def _record(description: str, required: str = "", /, **properties: Schema) -> Schema:
    record = {"type": "object", "description": description, "properties": properties}
    return {**record, "required": required.split()} if required else record


def _list(description: str, items: Schema, *, key: str = "") -> Schema:
    found = {"type": "array", "description": description, "items": items}
    return {**found, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else found


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _whole(description: str, **limits: int) -> Schema:
    return {"type": "integer", "format": "int64", "description": description, **limits}


def _quantity(description: str) -> Schema:
    return {"$ref": REF + QUANTITY, "description": description}


_CONDITIONS = _list(
    "What holds for the object now, one entry a type: Accepted, ResolvedRefs, Programmed and others.",
    _record(
        "One statement about the object.",
        "type status lastTransitionTime reason message",
        type=_text("What the statement is about, for example Programmed."),
        status=_text("True, False or Unknown."),
        observedGeneration=_whole("The metadata.generation that the statement was made about."),
        lastTransitionTime={
            "type": "string",
            "format": "date-time",
            "description": "When the status last changed.",
        },
        reason=_text("One word that programs can rely on."),
        message=_text("The same for people, with what to do next."),
    ),
    key="type",
)
_SPLIT_STATUS = _record(
    "What became of the split. Only the control plane writes it.",
    observedGeneration=_whole("The metadata.generation that the status is about."),
    conditions=_CONDITIONS,
    ports=_list(
        "The effect on each port of the root Service.",
        _record(
            "One port of the root Service.",
            port=_whole("The port's number."),
            backends=_list(
                "Who shares the port's traffic, and who was left out.",
                _record(
                    "One backend at this port.",
                    service=_text("The Service."),
                    weight=_whole("The weight in force; 0 for a backend that is left out."),
                    percent=_text("The share of requests in percent, for example 33.3%."),
                    endpoints=_whole("How many endpoints are ready to serve."),
                    reason=_text("Why the backend is left out; absent for one that takes part."),
                ),
            ),
        ),
    ),
    proxies=_record(
        "How far the split has come.",
        programmed=_whole("How many proxies confirmed it."),
        total=_whole("How many proxies must hold it."),
    ),
)
_MATCHES = _list(
    "Only requests that match one of these groups are split; the others go to the root Service itself.",
    _record(
        "Names a group of matches.",
        "kind name",
        apiGroup=_text("The API group of the kind; specs.smi-spec.io when absent."),
        kind=_text("The kind: HTTPRouteGroup."),
        name=_text("The name, in the split's own namespace."),
    ),
)


def _split(version: str) -> Schema:
    quantities = version in ("v1alpha1", "v1beta1")
    weight = "The relative share of the root's traffic; 0 for none. Shares need not add up to 100."
    spec = {
        "service": _text("The root: the Service that clients call, as a short name or a full domain name."),
        "backends": _list(
            "The Services that share the root's traffic.",
            _record(
                "One Service and its share.",
                "service weight",
                service=_text("The Service; name.namespace when it is in another namespace that grants this."),
                weight=_quantity(f"{weight} A quantity: 1 is 1000m.") if quantities else _whole(weight, minimum=0),
            ),
        ),
    }
    if version in ("v1alpha3", "v1alpha4"):
        spec["matches"] = _MATCHES
    return _kind(
        "Shares the traffic of a root Service between backend Services by weight.",
        spec=_record("What is wanted.", "service backends", **spec),
        status=_SPLIT_STATUS,
    )


def _grant() -> Schema:
    return _kind(
        "Consent of this namespace to be referred to from other namespaces.",
        spec=_record(
            "Any of `from` may refer to any of `to`.",
            "from to",
            **{
                "from": _list(
                    "Who may refer.",
                    _record(
                        "One kind in one namespace.",
                        "group kind namespace",
                        group=_text("The API group of the kind; empty for Kubernetes' core."),
                        kind=_text("The kind, for example TrafficSplit."),
                        namespace=_text("The namespace that the reference comes from."),
                    ),
                ),
                "to": _list(
                    "What may be referred to, in this namespace.",
                    _record(
                        "One kind or one object.",
                        "group kind",
                        group=_text("The API group of the kind; empty for Kubernetes' core."),
                        kind=_text("The kind, for example Service."),
                        name=_text("The object; all of the kind when absent."),
                    ),
                ),
            },
        ),
    )


def _kind(description: str, **fields: Schema) -> Schema:
    return _record(
        description,
        "spec",
        apiVersion=_text("The API group and version that the object is written in."),
        kind=_text("The kind of the object."),
        metadata={"$ref": f"{REF}{META}ObjectMeta", "description": "Name, namespace, labels and the like."},
        **fields,
    )


def _mesh() -> dict[str, Schema]:
    kinds: dict[GroupVersionKind, Schema] = {
        (SPLIT, version, "TrafficSplit"): _split(version)
        for version in ("v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4")
    }
    kinds["", "v1beta1", "TrafficSplit"] = _split("v1beta1")
    kinds |= {(GATEWAY, version, "ReferenceGrant"): _grant() for version in ("v1beta1", "v1")}
    kinds |= {
        (GATEWAY, version, kind.kind): _kind(f"A {kind.kind} of the Gateway API.", spec={"type": "object"})
        for kind in KINDS
        if kind.group == GATEWAY and kind.kind != "ReferenceGrant"
        for version in kind.versions
    }
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
