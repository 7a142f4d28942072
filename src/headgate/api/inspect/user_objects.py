"""The subresources of users' objects: taps, and the sidecar of a pod. The objects themselves are in other groups."""

from headgate.api.inspect.resource import InspectCall, InspectResource, Subresource
from headgate.api.inspect.tap import TAPS
from headgate.api.status import ApiError
from headgate.errors import NotFound, OutsideMesh
from headgate.kinds import TAPPABLE_KINDS
from headgate.resources.inspect import PodSidecar


async def _sidecar(call: InspectCall) -> PodSidecar:
    try:
        return await call.inspector.pod_sidecar(call.path.object_name)
    except OutsideMesh:
        raise
    except NotFound:
        raise ApiError(404, f"Pod {call.path.namespace}/{call.path.name} not found") from None


_SIDECAR = {"sidecar": Subresource("PodSidecar", PodSidecar, get=_sidecar)}
USER_OBJECTS = tuple(
    InspectResource(
        names.plural,
        names.kind,
        namespaced=names.namespaced,
        subresources={**TAPS, **_SIDECAR} if names.kind == "Pod" else TAPS,
    )
    for names in TAPPABLE_KINDS
)
