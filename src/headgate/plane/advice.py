"""What a writer learns at once about an object: references to what does not exist yet are only warned about (R22)."""

import asyncio
from collections.abc import Sequence

from headgate.compiler.report import Compiled
from headgate.plane.feed import COMPILED
from headgate.plane.machine import Machine
from headgate.resources.meta import Object
from headgate.resources.registry import key_of

PATIENCE_SECONDS = 0.2  # for the compiler to have seen a write; its warnings are worth that much of a writer's time
_KINDS = {(kind.group, kind.kind) for kind in COMPILED}


async def advice(obj: Object, machine: Machine) -> Sequence[str]:
    """Return what the compiler finds about an object that was just written."""
    if not _is_compiled(obj):
        return ()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            compiled = await machine.compiled(obj)
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
