"""The Gateway API's XMeshes: a mesh, its controller and its features (GEP-3949)."""

from headgate.kinds import EXPERIMENTAL, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.gateway_api.gateway import ParametersReference
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Resource

MESH_CONTROLLER = "headgate.dev/mesh-controller"


class XMeshSpec(Input, frozen=True, kw_only=True):
    """`spec` of an XMesh: the controller that implements the mesh."""

    controller_name: str
    parameters_ref: ParametersReference | None = None


class XMesh(Resource, frozen=True, kw_only=True):
    """An XMesh. It is headgate's if its `controller_name` is `MESH_CONTROLLER`."""

    spec: XMeshSpec


KIND = Kind(
    names_of("XMesh", EXPERIMENTAL),
    versions=("v1alpha1",),
    status=True,
    shape=XMesh,
    columns=(
        NAME,
        Column("Controller", "", "The controller that implements the mesh.", cell=cells.at("spec.controllerName")),
        Column("Accepted", cell=cells.condition("Accepted")),
        AGE,
    ),
)
