"""TrafficSplits (001; requirements 2.1): types, schema, checks and conversion of the kind."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from headgate.errors import Cause, DecodeError
from headgate.kinds import SPECS, SPLIT, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, STATE, Column, summary_path, summary_schema
from headgate.resources.columns import PROXIES as PROXY_COLUMNS
from headgate.resources.conversion import mapping, row_list
from headgate.resources.kind import MESH_CATEGORY, Conversion, Kind, ReadyBy, split_api_version
from headgate.resources.meta import Input, Object, Resource, is_dns_subdomain, part, rows
from headgate.resources.schema import builders
from headgate.resources.schema.builders import Schema, kind
from headgate.resources.schema.declared import BrokenAt, Field, FieldRule, StatusPart, declared_schema, rule_causes
from headgate.resources.smi.conversion import (
    ALIASES,
    MATCHLESS_VERSIONS,
    QUANTITY_VERSIONS,
    VERSIONS,
    WEIGHTS,
    annotated,
    parsed_json,
    read_annotations,
    with_matches,
)
from headgate.resources.smi.split_fields import (
    ALLOW_SELF_REFERENCE,
    MIRROR,
    NO_ENDPOINTS,
    STICKY,
    WEIGHT,
    BackendName,
    RootSpec,
    annotation_causes,
    shared_causes,
)
from headgate.resources.status import PROXY_PROGRESS, ObjectStatus, ProxyProgress, status_schema
from headgate.resources.weights import integer_weights, quantity


class SplitBackend(Input, frozen=True, kw_only=True):
    """A backend of a split: a Service (or `name.namespace`, D12) and its relative weight, an integer (R6, R7)."""

    service: BackendName
    weight: Annotated[int, Meta(ge=0), Field(WEIGHT, limits={"minimum": 0})]


class QuantityBackend(Input, frozen=True, kw_only=True):
    """A backend in the early versions, in which a weight is a quantity."""

    service: BackendName
    weight: Annotated[int | float | str, Field(schema=builders.quantity(f"{WEIGHT} A quantity: 1 is 1000m."))]


def _is_of_specs(api_group: str) -> bool:
    """Return whether the API group of a match is that of HTTPRouteGroups, which may have a version."""
    return api_group.partition("/")[0] in ("", SPECS)


class MatchReference(Input, frozen=True, kw_only=True):
    """A reference to an HTTPRouteGroup: only requests that match the group are split (R11)."""

    __rules__ = (
        FieldRule("name", "is missing", cel="self.name != ''", broken=lambda match: match.get("name") == ""),
        FieldRule(
            "apiGroup",
            f"must be {SPECS}",
            cel=" || ".join(
                (
                    "!has(self.apiGroup)",
                    "self.apiGroup == ''",
                    f"self.apiGroup == '{SPECS}'",
                    "self.apiGroup.startsWith('/')",
                    f"self.apiGroup.startsWith('{SPECS}/')",
                )
            ),
            broken=lambda match: (
                [BrokenAt(detail=f", not {group!r}")]
                if isinstance(group := match.get("apiGroup"), str) and not _is_of_specs(group)
                else []
            ),
        ),
    )

    api_group: Annotated[str, Field("The API group of the kind.")] = SPECS
    kind: Annotated[str, Field("The kind: HTTPRouteGroup.", choices=("HTTPRouteGroup",))]
    name: Annotated[str, Field("The name of the HTTPRouteGroup in the split's own namespace.")]


_BACKENDS = Field(
    "The Services that share the root's traffic.", key="service", item=Field("One Service and its share.")
)


class QuantitySplitSpec(RootSpec, frozen=True, kw_only=True):
    """`spec` of a split in v1alpha1, and in the early SMI's v1beta1."""

    backends: Annotated[tuple[QuantityBackend, ...], _BACKENDS]


class MatchlessSplitSpec(RootSpec, frozen=True, kw_only=True):
    """`spec` of a split in v1alpha2."""

    backends: Annotated[tuple[SplitBackend, ...], _BACKENDS]


class TrafficSplitSpec(MatchlessSplitSpec, frozen=True, kw_only=True):
    """`spec` of a split: clients call the root `service`, and `backends` share its traffic."""

    matches: Annotated[
        tuple[MatchReference, ...],
        Field(
            "Only requests that match one of these groups are split; all other requests go to the root Service itself. All "
            "requests are split when absent; an empty list is rejected, because it would look like no request.",
            key="kind name",
            item=Field("A reference to an HTTPRouteGroup."),
            limits={"minItems": 1},
        ),
    ] = ()


class TrafficSplit(Resource, frozen=True, kw_only=True):
    """A TrafficSplit: it shares a root Service's traffic between other Services by weight (001)."""

    spec: TrafficSplitSpec


def _spec_shape(version: str) -> type[RootSpec]:
    """Return the type of `spec` in a version."""
    if version in QUANTITY_VERSIONS:
        return QuantitySplitSpec
    return MatchlessSplitSpec if version in MATCHLESS_VERSIONS else TrafficSplitSpec


def split_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a TrafficSplit, in any version, that its schema can't express."""
    spec = part(obj, "spec")
    _, version = split_api_version(obj["apiVersion"])
    yield from rule_causes(_spec_shape(version), spec, "spec")
    yield from annotation_causes(obj)
    yield from shared_causes(obj, quantities=version in QUANTITY_VERSIONS)
    if version not in MATCHLESS_VERSIONS:
        yield from _match_causes(spec.get("matches"))
    elif "matches" in spec:
        yield Cause("spec.matches", f"is not a field of {version}; write the split in v1alpha4")


def _match_causes(matches: object) -> Iterator[Cause]:
    if matches == []:
        yield Cause("spec.matches", "is empty: name an HTTPRouteGroup, or leave out the field to split all requests")
    for index, match in rows(matches):
        name = match.get("name")
        if name and isinstance(name, str) and not is_dns_subdomain(name):
            yield Cause(f"spec.matches[{index}].name", f"{name!r} is not a valid object name")


_COLUMNS = (
    NAME,
    Column("Service", ".spec.service", "The root Service that clients call."),
    Column(
        "Backends",
        summary_path("backends"),
        "The backends and their weights.",
        cell=cells.listed("spec.backends", lambda row: f"{row.get('service')}:{row.get('weight')}"),
    ),
    *STATE,
    AGE,
    *PROXY_COLUMNS,
)


class BackendShare(StatusPart, frozen=True, kw_only=True):
    """The share of a backend on a port of the root Service."""

    service: Annotated[str, Field("The Service.", required=True)]
    weight: Annotated[int, Field("The active weight; 0 for a backend that is left out.")]
    percent: Annotated[str, Field("The share of requests in percent, for example 33.33%.")]
    endpoints: Annotated[int, Field("The number of ready endpoints.")]
    reason: Annotated[str, Field("The reason why the backend gets no traffic; absent if it gets traffic.")] = ""


class PortShares(StatusPart, frozen=True, kw_only=True):
    """The effect of a split on a port of the root Service."""

    port: Annotated[int, Field("The port's number.", required=True)]
    backends: Annotated[
        tuple[BackendShare, ...],
        Field(
            "The backends of the port, including those that get no traffic.",
            key="service",
            item=Field("One backend on this port."),
        ),
    ]


class TrafficSplitStatus(ObjectStatus, frozen=True, kw_only=True):
    """`status` of a TrafficSplit. The status writer adds the `summary`."""

    ports: Annotated[
        tuple[PortShares, ...],
        Field("The effect on each port of the root Service.", key="port", item=Field("One port of the root Service.")),
    ]
    proxies: Annotated[ProxyProgress, PROXY_PROGRESS]
    summary: Annotated[Mapping[str, str], Field(schema=summary_schema(_COLUMNS))] = {}


def traffic_split(version: str) -> Schema:
    """Return the schema of a TrafficSplit. Weights are quantities in early versions, which have no `matches`."""
    return kind(
        "Shares the traffic of a root Service between backend Services by weight.",
        spec=declared_schema(_spec_shape(version), "The desired split."),
        status=status_schema(TrafficSplitStatus, "split"),
    )


def _split_to_hub(obj: Object, version: str) -> Object:
    spec = mapping(obj.get("spec"), "spec")
    if version in MATCHLESS_VERSIONS:
        spec = with_matches(spec, obj, version)
    kept = read_annotations(obj).get(WEIGHTS)
    if version in QUANTITY_VERSIONS:
        spec["backends"], kept = _whole_backends(row_list(spec.get("backends"), "spec.backends"))
    elif _restored(kept, spec.get("backends")) is None:
        kept = None
    return annotated({**obj, "spec": spec}, weights=kept, matches=None)


def _whole_backends(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Any], str | None]:
    """Return the backends with integer weights, and the JSON annotation that preserves their quantities (`500m`).

    The annotation is None if it is not needed.
    """
    weights = integer_weights([quantity(row.get("weight"), f"spec.backends[{i}].weight") for i, row in enumerate(rows)])
    whole = [{**row, "weight": weight} for row, weight in zip(rows, weights, strict=True)]
    if all(type(row["weight"]) is int for row in rows):
        return whole, None
    kept = json.dumps({str(row.get("service")): row["weight"] for row in rows}, separators=(",", ":"))
    return whole, None if _restored(kept, whole) is None else kept


def _restored(kept: object, backends: object) -> list[Any] | None:
    """Return the backends with the quantities from the annotation; None if the quantities do not match the weights."""
    texts = parsed_json(kept)
    if not isinstance(texts, dict) or not isinstance(backends, list | tuple) or len(texts) != len(backends):
        return None
    if not all(isinstance(row, Mapping) and texts.get(str(row.get("service"))) is not None for row in backends):
        return None
    rows = [{**row, "weight": texts[str(row.get("service"))]} for row in backends]
    try:
        weights = integer_weights([quantity(row["weight"], "") for row in rows])
    except DecodeError:  # a client edited the annotation, so it is ignored
        return None
    return rows if list(weights) == [row.get("weight") for row in backends] else None


def _split_from_hub(obj: Object, version: str) -> Object:
    spec = mapping(obj.get("spec"), "spec")
    kept = read_annotations(obj).get(WEIGHTS)
    matches = None
    if version in MATCHLESS_VERSIONS and "matches" in spec:
        matches = json.dumps(spec.pop("matches"), separators=(",", ":"))
    if version in QUANTITY_VERSIONS:
        spec["backends"] = _restored(kept, spec.get("backends")) or spec.get("backends")
        kept = None
    return annotated({**obj, "spec": spec}, weights=kept, matches=matches)


KIND = Kind(
    names_of("TrafficSplit", SPLIT),
    versions=VERSIONS,
    aliases=ALIASES,
    status=True,
    shape=TrafficSplit,
    schema=lambda _group, version: traffic_split(version),
    checks=split_causes,
    conversion=Conversion(_split_to_hub, _split_from_hub),
    columns=_COLUMNS,
    annotations=frozenset({ALLOW_SELF_REFERENCE, MIRROR, NO_ENDPOINTS, STICKY}),
    recorded=True,
    categories=(MESH_CATEGORY,),
    unversioned=True,
    ready_by=ReadyBy.GENERATION,
)
