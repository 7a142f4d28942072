"""TrafficTargets (003; requirements 2.3): types, schema, checks and conversion of the kind."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from headgate.errors import Cause, DecodeError
from headgate.kinds import ACCESS, names_of
from headgate.resources import cells
from headgate.resources.audit_mode import MODE, WOULD_REFUSE, RefusedCalls, mode_causes
from headgate.resources.columns import AGE, NAME, SELECTED, STATE, Column, summary_path, summary_schema
from headgate.resources.columns import PROXIES as PROXY_COLUMNS
from headgate.resources.conversion import mapping
from headgate.resources.kind import MESH_CATEGORY, Conversion, Kind, ReadyBy, split_api_version
from headgate.resources.meta import Input, Object, Resource, namespace_of, part, rows
from headgate.resources.schema.builders import PORT_LIMITS, Schema, kind
from headgate.resources.schema.declared import Field, FieldRule, declared_schema, field_schema, rule_causes
from headgate.resources.smi.conversion import FLAT_TARGET, FLAT_TARGET_FIELDS, VERSIONS
from headgate.resources.smi.http_route_group import KIND as ROUTE_GROUP
from headgate.resources.status import (
    PROXY_PROGRESS,
    SELECTED_PODS,
    ObjectStatus,
    ProxyProgress,
    SelectedPodCounts,
    status_schema,
)

RULE_KINDS = ("HTTPRouteGroup", "TCPRoute", "UDPRoute")


class Subject(Input, frozen=True, kw_only=True):
    """A ServiceAccount whose pods may call the destination. An empty namespace means the TrafficTarget's own."""

    kind: Annotated[str, Field("The kind: ServiceAccount.", choices=("ServiceAccount",))]
    name: Annotated[str, Field("The ServiceAccount's name.", grammar="subdomain")]
    namespace: Annotated[
        str, Field("The ServiceAccount's namespace; the TrafficTarget's own when absent.", grammar="label")
    ] = ""


class Destination(Subject, frozen=True, kw_only=True):
    """The ServiceAccount whose pods are called.

    `port` (v1alpha1, v1alpha2) limits the target to one port; None means all ports.
    """

    port: Annotated[
        int | None, Field("The only port of the pods that may be called; all ports when absent.", limits=PORT_LIMITS)
    ] = None


class Rule(Input, frozen=True, kw_only=True):
    """Allowed traffic: an HTTPRouteGroup, TCPRoute or UDPRoute.

    Without `matches`, all traffic of the referenced object is allowed.
    """

    __rules__ = (
        FieldRule(
            "matches",
            "is only possible for an HTTPRouteGroup: leave it out to allow the whole route",
            cel="!has(self.matches) || self.kind == 'HTTPRouteGroup'",
            broken=lambda rule: rule.get("matches") is not None and rule.get("kind") != ROUTE_GROUP.kind,
        ),
    )

    kind: Annotated[str, Field("The kind.", choices=RULE_KINDS)]
    name: Annotated[str, Field("The name of the route in the TrafficTarget's own namespace.", grammar="subdomain")]
    matches: Annotated[
        tuple[str, ...] | None,
        Field(
            "The matches of an HTTPRouteGroup that are allowed; all when absent.",
            item=Field("A match's name."),
            limits={"minItems": 1},
        ),
    ] = None


class TrafficTargetSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TrafficTarget: `sources` may send pods of `destination` the traffic that one of `rules` allows."""

    destination: Annotated[
        Destination, Field("The destination: the pods of a ServiceAccount in the TrafficTarget's own namespace.")
    ]
    sources: Annotated[
        tuple[Subject, ...],
        Field(
            "The callers that are allowed; none when empty.",
            item=Field("A ServiceAccount whose pods may call."),
            required=True,
        ),
    ] = ()
    rules: Annotated[
        tuple[Rule, ...],
        Field(
            "The traffic that is allowed; none when empty. A request must satisfy one of the rules.",
            item=Field("Allowed traffic: requests of an HTTPRouteGroup, or connections of a TCPRoute."),
            required=True,
        ),
    ] = ()


class TrafficTarget(Resource, frozen=True, kw_only=True):
    """A TrafficTarget: it allows pods of some ServiceAccounts to call the pods of another ServiceAccount (003)."""

    spec: TrafficTargetSpec


def target_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a TrafficTarget, in any version, that its schema can't express."""
    yield from mode_causes(obj)
    _, version = split_api_version(obj["apiVersion"])
    if version == FLAT_TARGET:
        if "spec" in obj:
            yield Cause(
                "spec",
                f"is not a field of {version}: move its content to the top level, or write the TrafficTarget in v1alpha3",
            )
        for index, rule in rows(obj.get("specs")):
            yield from rule_causes(Rule, rule, f"specs[{index}]")
        yield from _namespace_causes(obj, part(obj, "destination"), "destination.namespace")
        return
    spec = part(obj, "spec")
    if "specs" in spec:
        yield Cause("spec.specs", "is no longer a field as of v1alpha2; rename it to rules")
    yield from rule_causes(TrafficTargetSpec, spec, "spec")
    yield from _namespace_causes(obj, part(spec, "destination"), "spec.destination.namespace")


def _namespace_causes(obj: Object, destination: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield a mistake if the destination is not in the TrafficTarget's own namespace.

    Write access to one namespace must not be enough to allow or deny requests to pods of another namespace.
    """
    own, written = namespace_of(obj), destination.get("namespace")
    if isinstance(written, str) and written and written != own:
        message = (
            f"is {written!r}, but a TrafficTarget is about pods of its own namespace, {own!r}: "
            f"set metadata.namespace to {written!r}, or leave this field out"
        )
        yield Cause(where, message)


_COLUMNS = (
    NAME,
    Column(
        "Destination",
        summary_path("destination"),
        "The ServiceAccount whose pods may be called.",
        cell=cells.subjects("destination"),
    ),
    Column(
        "Sources",
        summary_path("sources"),
        "The ServiceAccounts whose pods may call the destination.",
        cell=cells.subjects("sources"),
    ),
    Column("Rules", summary_path("rules"), "The routes that allowed requests match.", cell=cells.rules),
    *STATE,
    AGE,
    *SELECTED,
    *PROXY_COLUMNS,
)


class TrafficTargetStatus(ObjectStatus, frozen=True, kw_only=True):
    """`status` of a TrafficTarget. The status writer adds the `summary`."""

    pods: Annotated[SelectedPodCounts, SELECTED_PODS]
    proxies: Annotated[ProxyProgress, PROXY_PROGRESS]
    summary: Annotated[Mapping[str, str], Field(schema=summary_schema(_COLUMNS))] = {}
    would_refuse: Annotated[RefusedCalls | None, WOULD_REFUSE] = None


def traffic_target(version: str) -> Schema:
    """Return the schema of a TrafficTarget. v1alpha1 has no `spec`, and its rules are named `specs`."""
    what = "Allows pods of some ServiceAccounts to call the pods of another ServiceAccount."
    status = status_schema(TrafficTargetStatus, "target")
    if version == FLAT_TARGET:
        fields = {old: field_schema(TrafficTargetSpec, new) for old, new in FLAT_TARGET_FIELDS.items()}
        return kind(what, "destination sources specs", **fields, status=status)
    return kind(what, spec=declared_schema(TrafficTargetSpec, "The traffic that is allowed."), status=status)


def _target_to_hub(obj: Object, version: str) -> Object:
    """Move the top-level fields of v1alpha1 to `spec`. Its `specs` are `rules` in later versions."""
    if version != FLAT_TARGET:
        return obj
    if "spec" in obj:
        raise DecodeError(Cause("spec", f"is not a field of {version}; write the TrafficTarget in v1alpha3"))
    rest = {name: value for name, value in obj.items() if name not in FLAT_TARGET_FIELDS}
    return {**rest, "spec": {new: obj[old] for old, new in FLAT_TARGET_FIELDS.items() if old in obj}}


def _target_from_hub(obj: Object, version: str) -> Object:
    if version != FLAT_TARGET:
        return obj
    spec = mapping(obj.get("spec"), "spec")
    rest = {name: value for name, value in obj.items() if name != "spec"}
    return {**rest, **{old: spec[new] for old, new in FLAT_TARGET_FIELDS.items() if new in spec}}


KIND = Kind(
    names_of("TrafficTarget", ACCESS),
    versions=VERSIONS[1:],
    status=True,
    shape=TrafficTarget,
    schema=lambda _group, version: traffic_target(version),
    checks=target_causes,
    conversion=Conversion(_target_to_hub, _target_from_hub),
    columns=_COLUMNS,
    annotations=frozenset({MODE}),
    recorded=True,
    categories=(MESH_CATEGORY,),
    unversioned=True,
    ready_by=ReadyBy.GENERATION,
    loss="Calls that it refused are allowed until then.",
)
