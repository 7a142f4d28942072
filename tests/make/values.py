"""Compile objects of `tests.make.objects` for tests of what is made from them."""

from collections.abc import Mapping
from typing import Any

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.model.check import check
from headgate.model.routing import TlsMode
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings


def snapshot(*objects: Mapping[str, Any]) -> Snapshot:
    """Return a snapshot of objects."""
    return snapshot_of({key_of(dict(item)): dict(item) for item in objects})


def compiled(*objects: Mapping[str, Any], tls_modes: Mapping[str, TlsMode] | None = None, **settings: Any) -> Compiled:
    """Return what the compiler makes of objects, under `settings` (fields of Settings). Its model has no broken invariant."""
    result = compile_mesh(snapshot(*objects), Settings(**settings), tls_modes or {})
    assert check(result.mesh) == ()
    return result
