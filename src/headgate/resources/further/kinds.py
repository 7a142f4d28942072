"""The other kinds of a current Kubernetes, which headgate stores, lists and deletes, but does not carry out (D34).

Their names and schemas are data (`tools/further_kinds.py`).
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headgate.kinds import KindNames
from headgate.resources.further.autoscalers import CONVERSION
from headgate.resources.further.columns import COLUMNS
from headgate.resources.kind import Kind
from headgate.resources.schema.builders import Schema

_NO_POLICY = (
    "NetworkPolicies have no effect on one machine: no connection is refused because of them; TrafficTargets and mutual TLS "
    "decide about access"
)

_WITHOUT_EFFECT = {
    "NetworkPolicy": _NO_POLICY,
    "PersistentVolumeClaim": "",  # pods have directories for them
}


class _Row(msgspec.Struct, frozen=True):
    group: str
    kind: str
    plural: str
    short: tuple[str, ...]
    namespaced: bool
    versions: tuple[str, ...]
    status: bool
    subresources: tuple[str, ...]
    categories: tuple[str, ...]

    def as_kind(self) -> Kind:
        return Kind(
            KindNames(self.group, self.kind, self.plural, self.short, self.namespaced),
            versions=self.versions,
            conversion=CONVERSION if self.kind == "HorizontalPodAutoscaler" else None,
            columns=COLUMNS.get(self.kind, Kind.columns),
            status=self.status,
            subresources=self.subresources,
            categories=self.categories,
            without_effect=_WITHOUT_EFFECT.get(self.kind, f"{self.plural} are stored without effect"),
        )


def _data(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


FURTHER_KINDS = tuple(row.as_kind() for row in msgspec.json.decode(_data("kinds.json"), type=tuple[_Row, ...]))
"""The kinds, by group and name."""


@functools.cache
def further_definitions() -> Mapping[str, Schema]:
    """Return the definitions of their schemas by name. They also refer to published definitions."""
    schemas: Mapping[str, Schema] = msgspec.json.decode(_data("schemas.json"))
    return schemas
