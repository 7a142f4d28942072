"""The two worlds that a plan compares, and the causes of their differences."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.model.mutual_tls import TlsMode
from headgate.plan.departures import Side
from headgate.resources.gateway_api.proxies import PROXIES
from headgate.resources.inspect import Answer
from headgate.resources.meta import Key

ModeName: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [mode.value.capitalize() for mode in TlsMode]})]
"""A mode of mutual TLS."""
GatewayProxy: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [*PROXIES, ""]})]
"""The program of the proxy for clients without a sidecar that an object requests; empty without one."""


class Origin(Answer, frozen=True, kw_only=True):
    """The part of an object that causes a difference, or its deletion.

    `file` and `line` are empty for an object without a file.
    """

    object: Key
    field: str = ""
    deleted: bool = False
    file: str = ""
    line: int = 0


class World(NamedTuple):
    """Two compiled meshes, and the keys of the objects that differ.

    Findings are reported about the objects `known`; None means all objects. `snapshots` have the objects of both; without
    them it is not compared which pods have a sidecar. `makers` has the changed object of each object that follows from it.
    `deleted` has the objects that the change deletes; None means all that are not compiled any more.
    """

    before: Compiled
    after: Compiled
    changed: Collection[Key] = ()
    known: Collection[Key] | None = None
    snapshots: tuple[Snapshot, Snapshot] | None = None
    makers: Mapping[Key, Key] = MappingProxyType({})
    deleted: Collection[Key] | None = None

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """Both meshes with their objects; None if these are not known."""
        old, new = self.snapshots or (None, None)
        return (Side(self.before.mesh, old), Side(self.after.mesh, new)) if old and new else None

    def cause(self, key: Key, field: str) -> Origin:
        """Return a part of a changed object as a cause, or the object's deletion. The maker of an object is its cause."""
        key, field = (self.makers[key], "spec") if key in self.makers else (key, field)
        gone = key not in self.after.report.seen if self.deleted is None else key in self.deleted
        return Origin(object=key, field="" if gone else field, deleted=gone)
