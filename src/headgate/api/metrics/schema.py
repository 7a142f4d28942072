"""The OpenAPI schemas of TrafficMetrics, for `kubectl explain` and generated clients (R83, R84)."""

from collections.abc import Mapping
from typing import Any

from headgate.api.metrics.groups import EDGES, SPLITS, MetricsGroup, distinct_kind, is_cluster_scoped
from headgate.resources.metrics import TRAFFIC_METRICS, TRAFFIC_METRICS_LIST
from headgate.resources.schema.builders import (
    GVK,
    REF,
    Schema,
    choice,
    flag,
    gvk,
    kind,
    listing,
    operation,
    record,
    text,
    whole,
)
from headgate.resources.schema.catalog import definition_name


def definitions(group: MetricsGroup) -> Mapping[str, Schema]:
    """Return the schemas of a group by the names of their OpenAPI definitions."""
    name = _name(group, TRAFFIC_METRICS)
    return {
        name: {**_metrics(group), **_kinds(group, *map(distinct_kind, group.kinds.values()))},
        _name(group, TRAFFIC_METRICS_LIST): {**_list(name), **_kinds(group, TRAFFIC_METRICS_LIST)},
    }


def paths(group: MetricsGroup) -> dict[str, Any]:
    """Return the paths of a group for OpenAPI documents of version 2 or 3."""
    operations = {}
    for plural in group.kinds:
        scope = "" if is_cluster_scoped(plural) else "/namespaces/{namespace}"
        listing = f"/apis/{group.api_version}{scope}/{plural}"
        operations[listing] = _get(group, "list")
        operations[f"{listing}/{{name}}"] = _get(group, "get")
        if plural != SPLITS:
            operations[f"{listing}/{{name}}/{EDGES}"] = _get(group, "get")
    return operations


def _get(group: MetricsGroup, action: str) -> dict[str, Any]:
    return {"get": operation(action, gvk(group.name, group.version, TRAFFIC_METRICS))}


def _name(group: MetricsGroup, kind: str) -> str:
    return definition_name(group.name, group.version, kind)


def _kinds(group: MetricsGroup, *kinds: str) -> dict[str, Any]:
    return {GVK: [gvk(group.name, group.version, kind) for kind in kinds]}


def _reference(description: str) -> Schema:
    return record(
        description,
        kind=text("The kind of the resource; Outside for a client outside the mesh."),
        namespace=text("The namespace of the resource."),
        name=text("The name of the resource."),
    )


def _metrics(group: MetricsGroup) -> Schema:
    side = {"side": choice("The side whose proxy measured the traffic.", "client server")} if group.sides else {}
    backend = {
        "backend": record(
            "The backend of a TrafficSplit that the metrics are about.",
            apex=text("The root Service of the split, as written in the split."),
            name=text("The Service of the backend, as written in the split."),
            weight=whole("The weight of the backend."),
        )
    }
    return kind(
        "Traffic metrics of a resource in a window that has just ended.",
        "resource edge timestamp window metrics",
        resource=_reference("The resource that the metrics are about."),
        edge=record(
            "The peer of the traffic.",
            "direction resource",
            direction=choice("The direction of the traffic: to the peer, or from the peer.", "to from"),
            resource=_reference("The peer. An empty peer means all traffic that the resource received."),
            copy=flag("Whether these are mirrored copies of requests, which are counted separately."),
            security=record(
                "The use of mutual TLS on an edge.",
                "exchanged secured",
                exchanged=whole("The number of requests and connections."),
                secured=whole("The number of requests and connections over mutual TLS."),
                clients=listing("The SPIFFE IDs of authenticated clients.", text("A SPIFFE ID.")),
                servers=listing("The SPIFFE IDs of authenticated servers.", text("A SPIFFE ID.")),
            ),
            **side,
        ),
        timestamp=text("The end of the window.", "date-time"),
        window=text("The length of the window, such as 30s."),
        metrics=listing(
            "The metrics.",
            record(
                "A metric.",
                "name value",
                name=text(
                    "The name: p99_response_latency, p90_response_latency, p50_response_latency, success_count, "
                    "denied_count, stddev_response_latency, success_rate, ..."
                ),
                unit=text(f"The unit, which is {group.unit} for latencies."),
                value=text("The value, a quantity."),
                interval=record(
                    "The confidence interval of 99 %, in responses to requests with ?uncertainty=true.",
                    "low",
                    low=text("The low end, a quantity."),
                    high=text("The high end, a quantity. It is absent if there is no limit."),
                ),
            ),
        ),
        mesh=record(
            "The pods of the resource.",
            "pods meshed",
            pods=whole("The number of pods."),
            meshed=whole("The number of pods with a sidecar."),
        ),
        **(backend if group.splits else {}),
    )


def _list(listed: str) -> Schema:
    return kind(
        "Metrics of several resources, or of the edges of one resource.",
        "items",
        resource=_reference("The requested resource or kind."),
        selector=record("The label selector of the request."),
        items=listing("The metrics of each item.", {"$ref": f"{REF}{listed}"}),
    )
