"""What a writer learns at once about an object: references to what does not exist yet are only warned about (R22)."""

import asyncio
from collections.abc import Sequence

from headgate.plane.feed import COMPILED
from headgate.plane.machine import Machine
from headgate.resources.meta import Object
from headgate.resources.registry import key_of

PATIENCE_SECONDS = 0.2  # for the compiler to have seen a write; its warnings are worth that much of a writer's time
_KINDS = {(kind.group, kind.kind) for kind in COMPILED}


class Advice:
    """What a writer learns about an object: the compiler's findings, after the write or before it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def __call__(self, obj: Object, *, dry_run: bool) -> Sequence[str]:
        """Return the findings about an object that was just written; with `dry_run`, if it were written."""
        if not _is_compiled(obj):
            return ()
        try:
            async with asyncio.timeout(None if dry_run else PATIENCE_SECONDS):
                compiled = await (self._machine.foreseen(obj) if dry_run else self._machine.compiled(obj))
        except TimeoutError:
            return ()
        about = key_of(obj)
        return [f"{item.field}: {item.message}" for item in compiled.report.findings if item.about == about]


def _is_compiled(obj: Object) -> bool:
    key = key_of(obj)
    return (key.group, key.kind) in _KINDS
