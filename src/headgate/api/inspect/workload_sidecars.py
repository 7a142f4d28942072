"""The resource `workloadsidecars`: the workloads whose pods have sidecars, and how these differ from those of new pods."""

from headgate.api.inspect.resource import InspectCall, InspectResource
from headgate.resources.workload_sidecars import WorkloadSidecars, WorkloadSidecarsList


async def _list(call: InspectCall) -> WorkloadSidecarsList:
    return WorkloadSidecarsList(items=await call.inspector.workload_sidecars(call.path.namespace))


WORKLOAD_SIDECARS = InspectResource(
    "workloadsidecars",
    "WorkloadSidecars",
    WorkloadSidecars,
    list=_list,
    columns=(
        ("Pods", "The number of pods that have a sidecar, or would get one.", lambda workload: str(len(workload.pods))),
        (
            "Outdated",
            "The number of pods whose sidecars differ from those of new pods.",
            lambda workload: str(workload.outdated),
        ),
        ("Why", "The differences.", lambda workload: "; ".join(workload.messages)),
    ),
)
