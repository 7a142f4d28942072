"""Compile objects of `tests.make.objects` for tests of what is made from them."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from headgate.compiler.compile import compile_mesh
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding
from headgate.compiler.snapshot import Snapshot
from headgate.model.check import check
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Mesh, Workload
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


def with_local_names(mesh: Mesh) -> Mesh:
    """Return a mesh in which `localhost` replaces the names of servers outside the mesh: the compiler rejects that name."""
    entries = (
        structs.replace(
            entry,
            ready=tuple(
                structs.replace(place, address="localhost") if place.resolved else place for place in entry.ready
            ),
        )
        for entry in mesh.endpoints
    )
    return structs.replace(mesh, endpoints=tuple(entries))


def workloads(result: Compiled) -> dict[str, Workload]:
    """Return the workloads by the name of their pod, without its namespace."""
    return {workload.name.partition("/")[2]: workload for workload in result.mesh.workloads}


def identities(result: Compiled) -> dict[tuple[str, str], str]:
    """Return the identity of each ready endpoint by its Service port and address."""
    return {(str(entry.ref), place.address): place.identity for entry in result.mesh.endpoints for place in entry.ready}


def findings(result: Compiled, reason: Reason) -> list[Finding]:
    """Return the findings with a reason."""
    return [finding for finding in result.report.findings if finding.reason is reason]
