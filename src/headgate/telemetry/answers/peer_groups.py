"""Groups the peers of edges (R88)."""

from typing import Literal

from headgate.resources.pod_owners import Ref
from headgate.telemetry.answers.object_graph import NAMESPACE

Grouping = Literal["", "namespace", "kind"]
"""The grouping of peers in edges: no groups (empty), by namespace, or by kind (R88)."""


def grouping_key(peer: Ref, grouping: Grouping) -> Ref:
    """Return the group of a peer: its namespace or its kind. A peer without a namespace is grouped by its kind."""
    namespace = peer.name if peer.kind == NAMESPACE else peer.namespace
    if not grouping:
        return peer
    return Ref("", namespace) if grouping == "namespace" and namespace else Ref(peer.kind)
