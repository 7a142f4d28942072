"""The resource `meshstatuses`: the summary of the mesh, which is one object, and its metrics for Prometheus."""

from starlette.responses import Response

from headgate.api.exposition import exposition
from headgate.api.inspect.resource import InspectCall, InspectResource, Subresource
from headgate.api.status import ApiError, not_found
from headgate.resources.inspect import GROUP
from headgate.resources.mesh_status import MESH, MeshStatus, MeshStatusList
from headgate.resources.meta import since


async def _get(call: InspectCall) -> MeshStatus | None:
    return await call.inspector.status() if call.path.name == MESH else None


async def _list(call: InspectCall) -> MeshStatusList:
    return MeshStatusList(items=(await call.inspector.status(),))


async def _metrics(call: InspectCall) -> Response:
    if call.path.name != MESH:
        raise not_found(call.path.resource.plural, GROUP, call.path.name)
    if call.sources.families is None:
        raise ApiError(501, "on one machine, `headgate up --metrics-address ADDRESS` serves the metrics at /metrics")
    return await exposition(call.sources.families)


MESH_STATUSES = InspectResource(
    "meshstatuses",
    "MeshStatus",
    MeshStatus,
    get=_get,
    list=_list,
    columns=(
        ("Healthy", "Whether the mesh has no problem.", lambda mesh: "yes" if mesh.status.healthy else "no"),
        (
            "Proxies",
            "The number of proxies in sync, and of all proxies.",
            lambda mesh: f"{mesh.status.proxies.in_sync}/{mesh.status.proxies.total}",
        ),
        ("Errors", "The number of errors.", lambda mesh: str(mesh.status.findings.errors)),
        ("Warnings", "The number of warnings.", lambda mesh: str(mesh.status.findings.warnings)),
        ("Age", "Time since headgate started.", lambda mesh: since(mesh.status.start_time)),
    ),
    namespaced=False,
    subresources={"metrics": Subresource("MeshMetrics", connect=_metrics)},
)
