"""The API groups whose objects are computed for each request and not stored: one entry a group.

The embedded API and the aggregated API server both serve them, and discovery and the OpenAPI documents list them.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response

from headgate.api import resource_usage
from headgate.api.inspect import query as inspect_query
from headgate.api.inspect import schema as inspect_schema
from headgate.api.inspect.handlers import InspectApi
from headgate.api.inspect.registry import RESOURCES
from headgate.api.inspect.resource import InspectPath
from headgate.api.metrics import custom, external
from headgate.api.metrics import query as metrics_query
from headgate.api.metrics import schema as metrics_schema
from headgate.api.metrics.groups import EDGES, METRICS_GROUPS, SPLITS, MetricsGroup, distinct_kind, is_cluster_scoped
from headgate.api.metrics.handlers import MetricsApi
from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.resource_usage import UsageApi
from headgate.api.status import no_such_path
from headgate.resources import inspect
from headgate.resources.metrics import TRAFFIC_METRICS
from headgate.resources.schema.builders import Schema

AGGREGATED = "aggregated_apis"
"""The option of the mesh that registers the groups which only headgate serves."""
ApiResources = list[dict[str, Any]]
"""Resources as in an APIResourceList."""


class ParsedPath(Protocol):
    """A path below a group and version."""

    @property
    def attributes(self) -> ResourceAttributes:
        """The resource and verb that RBAC authorizes."""


class Handlers(NamedTuple):
    """The handlers of requests. `usage` is None on a cluster."""

    metrics: MetricsApi
    inspect: InspectApi
    usage: UsageApi | None = None


class ComputedGroup(NamedTuple):
    """A group and version.

    `parse` reads a path after the version, and a query, on which a verb may depend. `answer` responds to a request for a parsed path. `resources` returns the
    resources for discovery, `aggregated` those for aggregated discovery. `paths` returns the OpenAPI paths, `definitions` the
    schemas of their kinds by name; a group without paths has no OpenAPI document. On a cluster, the
    `option` of the mesh registers the group. Only the embedded API serves a `local` group.
    """

    name: str
    version: str
    parse: Callable[[Sequence[str], Mapping[str, str]], ParsedPath]
    answer: Callable[[Handlers, Request, Any], Awaitable[Response]]
    resources: Callable[[], ApiResources]
    aggregated: Callable[[], ApiResources]
    paths: Callable[[], Mapping[str, Any]] = dict
    definitions: Callable[[], Mapping[str, Schema]] = dict
    option: str = AGGREGATED
    local: bool = False


def _without_query(
    parse: Callable[[Sequence[str]], ParsedPath],
) -> Callable[[Sequence[str], Mapping[str, str]], ParsedPath]:
    """Return the `parse` of a group whose verbs depend on the path only."""
    return lambda parts, _: parse(parts)


def api_resource(name: str, kind: str, verbs: Sequence[str], *, namespaced: bool, singular: str = "") -> dict[str, Any]:
    """Return the APIResource of a resource, or of a subresource called `RESOURCE/NAME`."""
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}


def _metrics(group: MetricsGroup) -> ComputedGroup:
    async def answer(handlers: Handlers, request: Request, path: metrics_query.MetricsPath) -> Response:
        return await handlers.metrics.answer(request, path)

    def listed(plural: str, kind: str, singular: str = "") -> dict[str, Any]:
        return api_resource(plural, kind, ["get", "list"], namespaced=not is_cluster_scoped(plural), singular=singular)

    def aggregated() -> ApiResources:
        # Without a singular name, kubectl uses the kind in lower case, such as `podtrafficmetrics`.
        rows = [listed(plural, distinct_kind(kind), kind.lower()) for plural, kind in group.kinds.items()]
        edges = [
            {**row, "name": f"{row['name']}/{EDGES}", "singularName": "", "verbs": ["get"]}
            for row in rows
            if row["name"] != SPLITS
        ]
        return rows + edges

    return ComputedGroup(
        group.name,
        group.version,
        _without_query(functools.partial(metrics_query.parse_path, group)),
        answer,
        resources=lambda: [listed(plural, TRAFFIC_METRICS) for plural in group.kinds],
        aggregated=aggregated,
        paths=lambda: metrics_schema.paths(group),
        definitions=lambda: metrics_schema.definitions(group),
    )


async def _custom_metrics(handlers: Handlers, request: Request, path: custom.CustomMetricsPath) -> Response:
    return await custom.CustomMetricsApi(handlers.metrics).answer(request, path)


def _custom_resources() -> ApiResources:
    return [
        api_resource(f"{resource}/{metric}", custom.LIST, ["get"], namespaced=True)
        for resource in custom.RESOURCES
        for metric in custom.METRICS
    ]


async def _external_metrics(handlers: Handlers, request: Request, path: external.ExternalMetricsPath) -> Response:
    return await external.answer(handlers.metrics, request, path)


def _external_resources() -> ApiResources:
    return [api_resource(metric, external.LIST, ["list"], namespaced=True) for metric in custom.METRICS]


async def _inspection(handlers: Handlers, request: Request, path: InspectPath) -> Response:
    return await handlers.inspect.answer(request, path)


async def _usage(handlers: Handlers, request: Request, path: resource_usage.UsagePath) -> Response:
    if handlers.usage is None:
        raise no_such_path()
    return await handlers.usage.answer(request, path)


def _usage_resources() -> ApiResources:
    return [
        api_resource(plural, kind, ["get", "list"], namespaced=plural == "pods")
        for plural, kind in resource_usage.KINDS.items()
    ]


def _inspect_resources() -> ApiResources:
    """Return the inspect resources and their subresources. A resource without verbs is left out."""
    rows: ApiResources = []
    for resource in RESOURCES.values():
        plural, kind, namespaced = resource.plural, resource.kind, resource.namespaced
        if resource.verbs:
            rows.append(api_resource(plural, kind, resource.verbs, namespaced=namespaced, singular=kind.lower()))
        rows += [
            api_resource(f"{plural}/{name}", part.kind, ["get"], namespaced=namespaced)
            for name, part in resource.subresources.items()
        ]
    return rows


COMPUTED_GROUPS: Mapping[tuple[str, str], ComputedGroup] = {
    (group.name, group.version): group
    for group in (
        ComputedGroup(
            inspect.GROUP,
            inspect.VERSION,
            inspect_query.parse_path,
            _inspection,
            resources=_inspect_resources,
            aggregated=_inspect_resources,
            paths=inspect_schema.paths,
            definitions=inspect_schema.definitions,
        ),
        *map(_metrics, METRICS_GROUPS.values()),
        ComputedGroup(
            *custom.CUSTOM_METRICS,
            _without_query(custom.parse_path),
            _custom_metrics,
            resources=_custom_resources,
            aggregated=_custom_resources,
            option="custom_metrics",
        ),
        ComputedGroup(
            *external.EXTERNAL_METRICS,
            _without_query(external.parse_path),
            _external_metrics,
            resources=_external_resources,
            aggregated=_external_resources,
            option="external_metrics",
        ),
        ComputedGroup(
            resource_usage.GROUP,
            resource_usage.VERSION,
            _without_query(resource_usage.parse_path),
            _usage,
            resources=_usage_resources,
            aggregated=_usage_resources,
            paths=resource_usage.paths,
            definitions=resource_usage.definitions,
            local=True,
        ),
    )
}
"""All groups, by name and version, in the order of discovery."""
AGGREGATED_GROUPS = {key: group for key, group in COMPUTED_GROUPS.items() if not group.local}
"""The groups that the aggregated API server serves on a cluster."""
REQUESTED_GROUPS = {key: group for key, group in AGGREGATED_GROUPS.items() if group.option != AGGREGATED}
"""The groups that a cluster has only on request: another server may have them, and a cluster can have only one."""
