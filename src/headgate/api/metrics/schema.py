"""The schemas of TrafficMetrics, for `kubectl explain` and for clients that are made from OpenAPI (R83, R84)."""

import functools
from collections.abc import Mapping
from typing import Any

from headgate.api.metrics.groups import EDGES, METRICS_GROUPS, SPLITS, MetricsGroup, distinct_kind, is_cluster_scoped
from headgate.resources.definitions.catalog import definition_name
from headgate.resources.definitions.schema_builders import (
    META,
    REF,
    Schema,
    choice,
    flag,
    kind,
    listing,
    record,
    text,
    whole,
)
from headgate.resources.metrics import TRAFFIC_METRICS, TRAFFIC_METRICS_LIST

_GVK = "x-kubernetes-group-version-kind"
_META_DEFINITION = f"{META}ObjectMeta"


@functools.cache
def definitions() -> Mapping[str, Schema]:
    """Return the schemas by the names of their definitions."""
    found: dict[str, Schema] = {}
    for group in METRICS_GROUPS.values():
        name = _name(group, TRAFFIC_METRICS)
        found[name] = {**_metrics(group), **_kinds(group, *map(distinct_kind, group.kinds.values()))}
        found[_name(group, TRAFFIC_METRICS_LIST)] = {**_list(name), **_kinds(group, TRAFFIC_METRICS_LIST)}
    return found


def names(group: MetricsGroup) -> set[str]:
    """Return the names of a group's definitions, with those that they point at."""
    return {_name(group, TRAFFIC_METRICS), _name(group, TRAFFIC_METRICS_LIST), _META_DEFINITION}


def paths(group: MetricsGroup) -> dict[str, Any]:
    """Return the paths of a group as OpenAPI has them, 2 and 3 alike."""
    found = {}
    for plural in group.kinds:
        scope = "" if is_cluster_scoped(plural) else "/namespaces/{namespace}"
        listing = f"/apis/{group.api_version}{scope}/{plural}"
        found[listing] = _get(group, "list")
        found[f"{listing}/{{name}}"] = _get(group, "get")
        if plural != SPLITS:
            found[f"{listing}/{{name}}/{EDGES}"] = _get(group, "get")
    return found


def _get(group: MetricsGroup, action: str) -> dict[str, Any]:
    gvk = {"group": group.name, "version": group.version, "kind": TRAFFIC_METRICS}
    return {"get": {"responses": {"200": {"description": "OK"}}, "x-kubernetes-action": action, _GVK: gvk}}


def _name(group: MetricsGroup, kind: str) -> str:
    return definition_name(group.name, group.version, kind)


def _kinds(group: MetricsGroup, *kinds: str) -> dict[str, Any]:
    return {_GVK: [{"group": group.name, "version": group.version, "kind": kind} for kind in kinds]}


def _reference(description: str) -> Schema:
    return record(
        description,
        kind=text("The kind of the resource; Outside for a client that is no resource."),
        namespace=text("The namespace of the resource."),
        name=text("The name of the resource."),
    )


def _metrics(group: MetricsGroup) -> Schema:
    side = {"side": choice("Who measured.", "client server")} if group.sides else {}
    backend = {
        "backend": record(
            "The leg of a TrafficSplit that this is about.",
            apex=text("The Service that clients call, as the split has it."),
            name=text("The Service of the leg, as the split has it."),
            weight=whole("The weight of the leg."),
        )
    }
    return kind(
        "What a resource exchanged with others, in a window that ended just now.",
        "resource edge timestamp window metrics",
        resource=_reference("Whose traffic this is."),
        edge=record(
            "The other end of the traffic.",
            "direction resource",
            direction=choice("Whether traffic went to the other end or came from it.", "to from"),
            resource=_reference("The other end; empty for all traffic that the resource received."),
            copy=flag("Whether these are copies of requests, as mirrors make them: counted apart."),
            security=record(
                "How the requests and connections of an edge went.",
                "exchanged secured",
                exchanged=whole("How many requests and connections there were."),
                secured=whole("How many of them went by mutual TLS."),
                clients=listing("The SPIFFE IDs that clients proved.", text("A SPIFFE ID.")),
                servers=listing("The SPIFFE IDs that servers proved.", text("A SPIFFE ID.")),
            ),
            **side,
        ),
        timestamp=text("The end of the window.", "date-time"),
        window=text("The length of the window, as in 30s."),
        metrics=listing(
            "The numbers.",
            record(
                "A number.",
                "name value",
                name=text(
                    "Which: p99_response_latency, p90_response_latency, p50_response_latency, success_count, denied_count, ..."
                ),
                unit=text(f"The unit: {group.unit} for latencies."),
                value=text("The value, a quantity."),
            ),
        ),
        mesh=record(
            "The pods that the resource has now.",
            "pods meshed",
            pods=whole("How many pods there are."),
            meshed=whole("How many of them have a sidecar."),
        ),
        **(backend if group.splits else {}),
    )


def _list(item: str) -> Schema:
    return kind(
        "Metrics of several resources, or of the edges of one.",
        "items",
        resource=_reference("What was asked for."),
        selector=record("Which items show."),
        items=listing("The metrics.", {"$ref": f"{REF}{item}"}),
    )
