"""The condition of a Service: whether its pods have the ports that it names. Only Services with a fault get one. Pure."""

from collections.abc import Mapping
from typing import Any

from headgate.compiler.reasons import Condition
from headgate.compiler.report import Verdict
from headgate.plane.status.conditions import Present, Said, status_of, timed
from headgate.resources.meta import Object

_TYPE = Condition.RESOLVED_REFS
_FINE = "the pods of the Service have every port that it names"


def service_status(obj: Object, said: Said, present: Present) -> Mapping[str, Any] | None:
    """Return the whole status; None for a Service that has no fault and had none. Conditions of others stay."""
    before = status_of(obj)
    known = before.get("conditions") or ()
    faults = [item for item in said.findings if item.reason.condition is _TYPE]
    if not faults and all(item.get("type") != _TYPE.value for item in known):
        return None
    text = "; ".join(dict.fromkeys(f"{item.field}: {item.message}" for item in faults))
    verdict = Verdict(
        type=_TYPE.value,
        status=not faults,
        reason=faults[0].reason.value if faults else _TYPE.value,
        message=text or _FINE,
    )
    generation = said.generation or obj["metadata"].get("generation", 0)
    own = timed([verdict], known, generation=generation, now=present.time)
    return {**before, "conditions": [*(item for item in known if item.get("type") != _TYPE.value), *own]}
