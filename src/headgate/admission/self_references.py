"""What is refused at every write: structural mistakes, and splits that name their own root as a backend (R18, D1)."""

from headgate.compiler.splits import SELF_REFERENCE, self_reference
from headgate.errors import Cause, Invalid
from headgate.objects.ports import Admit
from headgate.resources.decode import check
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.resources.smi import TrafficSplit
from headgate.settings import Settings


def chain(*hooks: Admit) -> Admit:
    """Return a hook that runs several in their order."""

    def admit(new: Object, old: Object | None) -> Object:
        for hook in hooks:
            new = hook(new, old)
        return new

    return admit


def admit_sound(settings: Settings) -> Admit:
    """Return a hook that refuses an object with structural mistakes, and a split that names its root as a backend (D1)."""

    def admit(new: Object, _old: Object | None) -> Object:
        checked = check(new)
        if checked.causes:
            raise Invalid(*checked.causes)
        if isinstance(checked.value, TrafficSplit):
            index = self_reference(key_of(new), checked.value, settings.domain)
            if index is not None:
                message = SELF_REFERENCE.format(root=checked.value.spec.service)
                raise Invalid(Cause(f"spec.backends[{index}].service", message))
        return new

    return admit
