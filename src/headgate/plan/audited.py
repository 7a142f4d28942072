"""What access rules in audit mode would deny if they were enforced."""

from msgspec import structs

from headgate.model.authorization import enforced
from headgate.plan.access import access_changes
from headgate.plan.departures import without_sidecar
from headgate.plan.plan import AccessRow, access_rows
from headgate.plan.world import World


def audited_losses(world: World) -> tuple[AccessRow, ...]:
    """Return the access that callers would lose if audited pods enforced their rules; only of pods whose rules the change affects."""
    mesh = world.after.mesh
    before = {(workload.identity, workload.access) for workload in world.before.mesh.workloads}
    workloads = tuple(
        structs.replace(workload, access=enforced(workload.access))
        if (workload.identity, workload.access) not in before
        else workload
        for workload in mesh.workloads
    )
    bare = without_sidecar(world.sides[1]) if world.sides else frozenset[str]()
    losses = (
        structs.replace(change, workloads=guarded)
        for change in access_changes(mesh, structs.replace(mesh, workloads=workloads))
        if change.kind == "lost" and (guarded := tuple(name for name in change.workloads if name not in bare))
    )
    return tuple(access_rows(world, losses))
