"""What is refused at every write: structural mistakes, and splits that name their own root as a backend (R18, D1)."""

from headgate.compiler.references import SELF_REFERENCE, self_reference
from headgate.errors import Cause
from headgate.resources.checks.shared import namespace_of
from headgate.resources.decode import Check, Checked, check
from headgate.resources.meta import Object
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.smi import TrafficSplit
from headgate.settings import Settings


def sound_check(settings: Settings) -> Check:
    """Return the check of every object that is written: its structure, and that no split names its root as a backend (D1)."""

    def checked(obj: Object, *, request: bool = False) -> Checked:
        found = check(obj, request=request)
        if isinstance(found.value, TrafficSplit):
            index = self_reference(TRAFFIC_SPLIT.key(namespace_of(obj), ""), found.value, settings.domain)
            if index is not None:
                message = SELF_REFERENCE.format(root=found.value.spec.service)
                return Checked((Cause(f"spec.backends[{index}].service", message),), unknown=found.unknown)
        return found

    return checked
