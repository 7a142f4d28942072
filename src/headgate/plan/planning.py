"""The question and the answer of a plan: changed objects and checks; differences and verdicts."""

from collections.abc import Collection

from msgspec import structs

from headgate.plan.checks import CheckVerdict, Never, never, no_new_access
from headgate.plan.plan import Plan, plan
from headgate.plan.world import World
from headgate.resources.meta import Key, Object, Value


class PlanQuery(Value, frozen=True, kw_only=True):
    """Objects that would be applied and deleted, and the checks of access that should hold then."""

    objects: tuple[Object, ...] = ()
    deleted: tuple[Key, ...] = ()
    no_new_access: bool = False
    never: Never | None = None

    def with_objects(self, objects: tuple[Object, ...]) -> "PlanQuery":
        """Return the query for other objects."""
        return structs.replace(self, objects=objects)


class PlanResult(Value, frozen=True, kw_only=True):
    """A plan, and a verdict for each check.

    `ignored` names objects of kinds that a plan does not include, and `on_creation` the pods that get their change only when
    they are created again.
    """

    plan: Plan
    verdicts: tuple[CheckVerdict, ...] = ()
    ignored: tuple[str, ...] = ()
    on_creation: tuple[str, ...] = ()

    def with_plan(self, found: Plan) -> "PlanResult":
        """Return the result with another plan."""
        return structs.replace(self, plan=found)


def checked_plan(
    world: World, query: PlanQuery, *, changed: Collection[str] = (), missing: Collection[str] = ()
) -> PlanResult:
    """Compare two worlds with their objects, and check the second. Raises InvalidCheck, NotFound.

    `changed` says which changed objects the comparison lacks, and `missing` which objects the new world lacks, changed or not.
    """
    found = plan(world)
    verdicts = []
    if query.no_new_access:
        verdicts.append(no_new_access(found, changed))
    if query.never and world.sides:
        verdicts.append(never(world.sides[1], query.never, (*changed, *missing)))
    return PlanResult(plan=found, verdicts=tuple(verdicts))
