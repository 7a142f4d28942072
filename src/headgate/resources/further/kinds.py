"""The other kinds of a current Kubernetes, which headgate stores, lists and deletes (D34).

On one machine, the kinds in `CARRIED_OUT` have their effect. The remaining kinds have none.
The names and schemas are data (`tools/further_kinds.py`).
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headgate.kinds import KindNames
from headgate.resources.further.autoscalers import CONVERSION, text_causes
from headgate.resources.further.columns import COLUMNS
from headgate.resources.kind import Kind
from headgate.resources.pod_templates import TEMPLATED_KINDS
from headgate.resources.schema.builders import Schema

_NO_POLICY = (
    "NetworkPolicies have no effect on one machine: no connection is refused because of them; TrafficTargets and mutual TLS "
    "decide about access"
)
CARRIED_OUT = frozenset(
    {"HorizontalPodAutoscaler", "PersistentVolumeClaim", *(templated.kind for templated in TEMPLATED_KINDS)}
)
"""The kinds that have their effect on one machine too: workloads run, autoscalers scale them, and claims are directories."""


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
            checks=text_causes if self.kind == "HorizontalPodAutoscaler" else None,
            conversion=CONVERSION if self.kind == "HorizontalPodAutoscaler" else None,
            columns=COLUMNS.get(self.kind, Kind.columns),
            status=self.status,
            subresources=self.subresources,
            categories=self.categories,
            requires_fields=True,
            without_effect="" if self.kind in CARRIED_OUT else self.no_effect,
        )

    @property
    def no_effect(self) -> str:
        """That headgate only stores the objects, as a sentence."""
        return _NO_POLICY if self.kind == "NetworkPolicy" else f"{self.plural} are stored without effect"


def _data(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


FURTHER_KINDS = tuple(row.as_kind() for row in msgspec.json.decode(_data("kinds.json"), type=tuple[_Row, ...]))
"""The kinds, by group and name."""


@functools.cache
def further_definitions() -> Mapping[str, Schema]:
    """Return the definitions of their schemas by name. They also refer to published definitions."""
    schemas: Mapping[str, Schema] = msgspec.json.decode(_data("schemas.json"))
    return schemas
