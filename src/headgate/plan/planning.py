"""The plan of a change as an object of the inspect API: changed objects and checks; differences and verdicts."""

from collections.abc import Collection

from msgspec import structs

from headgate.plan.audited import audited_losses
from headgate.plan.checks import CheckVerdict, Never, never, no_new_access
from headgate.plan.plan import AccessRow, Differences, plan
from headgate.plan.world import World
from headgate.resources.inspect import API_VERSION, Answer, ObjectName
from headgate.resources.meta import Key, Object


class PlanSpec(Answer, frozen=True, kw_only=True):
    """Objects that would be written and deleted, and the checks of access that should hold then.

    `applied` objects are merged as `kubectl apply` merges them; others replace the stored ones.
    """

    objects: tuple[Object, ...] = ()
    applied: bool = False
    deleted: tuple[Key, ...] = ()
    no_new_access: bool = False
    never: Never | None = None

    def with_objects(self, objects: tuple[Object, ...]) -> "PlanSpec":
        """Return the spec for other objects."""
        return structs.replace(self, objects=objects)


class PlanStatus(Answer, frozen=True, kw_only=True):
    """What a change does, and a verdict for each check.

    `ignored` has objects of kinds that a plan does not include, and `on_creation` the pods that get their change only when
    they are created again. `revision_message` names the namespaces whose proxies have the rules of another revision of headgate.
    `audited` has the access that callers would lose if the pods, whose rules audit after the change, enforced them.
    `kept_audits` has objects that stay in audit mode, because an apply keeps the stored annotation that their manifests omit.
    """

    differences: Differences
    audited: tuple[AccessRow, ...] = ()
    kept_audits: tuple[Key, ...] = ()
    verdicts: tuple[CheckVerdict, ...] = ()
    ignored: tuple[Key, ...] = ()
    on_creation: tuple[str, ...] = ()
    revision_message: str = ""

    def with_differences(self, differences: Differences) -> "PlanStatus":
        """Return the status with other differences."""
        return structs.replace(self, differences=differences)


class Plan(Answer, frozen=True, kw_only=True):
    """The plan of a change. A client creates it with a spec, and gets the status; nothing is stored."""

    metadata: ObjectName = ObjectName()
    spec: PlanSpec
    status: PlanStatus | None = None
    api_version: str = API_VERSION
    kind: str = "Plan"


def checked_plan(
    world: World, spec: PlanSpec, *, changed: Collection[str] = (), missing: Collection[str] = ()
) -> PlanStatus:
    """Compare two worlds with their objects, and check the second. Raises InvalidCheck, NotFound.

    `changed` says which changed objects the comparison lacks, and `missing` which objects the new world lacks, changed or not.
    """
    differences = plan(world)
    verdicts = []
    if spec.no_new_access:
        verdicts.append(no_new_access(differences, changed))
    if spec.never and world.sides:
        verdicts.append(never(world.sides[1], spec.never, (*changed, *missing)))
    return PlanStatus(differences=differences, audited=audited_losses(world), verdicts=tuple(verdicts))
