"""Splits that name their own root as a backend are refused at the write (R18, D1)."""

from headgate.compiler.splits import SELF_REFERENCE, self_reference
from headgate.errors import Cause, Invalid
from headgate.objects.ports import Admit
from headgate.resources import decode
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


def deny_self_reference(settings: Settings) -> Admit:
    """Return a hook that refuses a split whose root is among its backends (D1). It wants sound objects."""

    def admit(new: Object, _old: Object | None) -> Object:
        if new["kind"] != TrafficSplit.__name__:
            return new
        split = decode.decode(new)
        if isinstance(split, TrafficSplit):
            index = self_reference(key_of(new), split, settings.domain)
            if index is not None:
                message = SELF_REFERENCE.format(root=split.spec.service)
                raise Invalid(Cause(f"spec.backends[{index}].service", message))
        return new

    return admit
