"""The kind Canary."""

from headgate.kinds import MESH, names_of
from headgate.resources.columns import AGE, NAME, STATE, Column, condition_path
from headgate.resources.gateway_api.proxies import SERVICE_GATEWAY
from headgate.resources.kind import MESH_CATEGORY, Kind, ReadyBy
from headgate.resources.mesh.canary.checks import canary_causes
from headgate.resources.mesh.canary.status import CanaryStatus
from headgate.resources.mesh.canary.types import PROMOTED, Canary, CanarySpec
from headgate.resources.schema.builders import Schema, kind
from headgate.resources.schema.declared import declared_schema
from headgate.resources.smi.conversion import ALIASES
from headgate.resources.smi.split_fields import ALLOW_SELF_REFERENCE, MIRROR, NO_ENDPOINTS, STICKY
from headgate.resources.status import status_schema


def canary() -> Schema:
    """Return the schema of a Canary (004; R108, R109, D19)."""
    return kind(
        "Moves the traffic of a root Service to a new version, step by step, or back if the new version is worse.",
        spec=declared_schema(CanarySpec, "The desired split, and the analysis that changes it."),
        status=status_schema(CanaryStatus, "Canary"),
    )


KIND = Kind(
    names_of("Canary", MESH),
    versions=("v1beta1",),
    aliases=ALIASES,
    status=True,
    shape=Canary,
    schema=lambda _group, _version: canary(),
    checks=canary_causes,
    columns=(
        NAME,
        Column("Service", ".spec.service", "The root Service that clients call."),
        Column("Rollout", condition_path(PROMOTED, "reason"), "The state of the rollout."),
        Column("Step", ".status.step", "The number of the current step.", "integer"),
        Column("Canary-Share", ".status.canaryShare", "The canary's share of the requests."),
        *STATE,
        AGE,
        Column("Message", condition_path(PROMOTED, "message"), "The reason of the state.", wide=True),
    ),
    fields_of_annotations={
        ALLOW_SELF_REFERENCE: "spec.allowSelfReference",
        MIRROR: "spec.analysis.mirror",
        NO_ENDPOINTS: "spec.noEndpointsPolicy",
        SERVICE_GATEWAY: "spec.gateway",
        STICKY: "spec.stickiness",
    },
    recorded=True,
    unrestored=("request",),  # an earlier request would be obeyed again
    categories=(MESH_CATEGORY,),
    ready_by=ReadyBy.GENERATION,
)
