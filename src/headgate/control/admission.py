"""What may enter the embedded store, and what a writer is told about it at once.

Structural mistakes and self-references are refused (R18); references to what does not exist yet are only warned about,
because the order of creation is free (R22).
"""

import asyncio
from collections.abc import Sequence

from headgate.compiler.report import Compiled
from headgate.compiler.splits import SELF_REFERENCE, self_reference
from headgate.control.feed import COMPILED
from headgate.control.machine import Machine
from headgate.errors import Cause, Invalid
from headgate.resources import decode
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.resources.smi import TrafficSplit
from headgate.settings import Settings
from headgate.store.base import Admit

PATIENCE_SECONDS = 0.2  # for the compiler to have seen a write; its warnings are worth that much of a writer's time
_KINDS = {(kind.group, kind.kind) for kind in COMPILED}


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


async def advice(obj: Object, machine: Machine) -> Sequence[str]:
    """Return what the compiler finds about an object that was just written."""
    if not _is_compiled(obj):
        return ()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            compiled = await machine.compiled(int(obj["metadata"]["resourceVersion"]))
    except TimeoutError:
        return ()
    return _findings(compiled, obj)


async def foreseen(obj: Object, machine: Machine) -> Sequence[str]:
    """Return what the compiler would find about an object if it were written: the advice of a dry run."""
    return _findings(await machine.foreseen(obj), obj) if _is_compiled(obj) else ()


def _is_compiled(obj: Object) -> bool:
    key = key_of(obj)
    return (key.group, key.kind) in _KINDS


def _findings(compiled: Compiled, obj: Object) -> Sequence[str]:
    return [f"{item.field}: {item.message}" for item in compiled.report.about(key_of(obj))]
