"""GatewayClasses."""

from headgate.kinds import GATEWAY, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.gateway_api.gateway import ParametersReference
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Resource


class GatewayClassSpec(Input, frozen=True, kw_only=True):
    """`spec` of a GatewayClass: the controller that implements its Gateways."""

    controller_name: str
    parameters_ref: ParametersReference | None = None


class GatewayClass(Resource, frozen=True, kw_only=True):
    """A GatewayClass. headgate implements a class if its `controller_name` is `CONTROLLER`."""

    spec: GatewayClassSpec


KIND = Kind(
    names_of("GatewayClass", GATEWAY),
    versions=("v1", "v1beta1"),
    status=True,
    shape=GatewayClass,
    columns=(
        NAME,
        Column(
            "Controller",
            "",
            "The controller that implements Gateways of the class.",
            cell=cells.at("spec.controllerName"),
        ),
        Column("Accepted", cell=cells.condition("Accepted")),
        AGE,
        Column("Description", cell=cells.at("spec.description"), wide=True),
    ),
)
