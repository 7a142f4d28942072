"""`kubectl traffic edges`: the traffic between a resource and each of its peers (R86, R91, R92)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from headgate import formatting
from headgate.cli.traffic.api import Document, items
from headgate.cli.traffic.kinds import OUTSIDE, MetricsKind
from headgate.cli.traffic.metrics import Metrics, parse_metrics
from headgate.cli.traffic.table import (
    CONNECTION_FAILURES,
    CONNECTIONS,
    DENIED,
    NARROW,
    WIDE,
    Cell,
    MetricColumn,
    format_table,
    nonzero_columns,
)
from headgate.formatting import NONE

ALL = "(all)"


class EdgePeer(msgspec.Struct, frozen=True, order=True):
    """The other end of an edge. Fields that the API does not return are empty (R88)."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    def named(self, kind: str, namespace: str) -> str:
        """Return the name, relative to a resource of a kind in a namespace: `foo`, `shop/foo`, `pod/foo`."""
        if self.kind == OUTSIDE:
            return f"({self.name or OUTSIDE.lower()})"
        if not self.name:
            return self.namespace or self.kind or ALL
        name = self.name if self.namespace in ("", namespace) else f"{self.namespace}/{self.name}"
        return name if self.kind in ("", kind) else f"{self.kind.lower()}/{name}"


class Security(msgspec.Struct, frozen=True):
    """The mutual TLS of an edge: the number of all requests and connections, and of those with mutual TLS (`secured`).

    `clients` and `servers` have the SPIFFE IDs of the certificates.
    """

    total: int
    secured: int
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()

    @property
    def share(self) -> str:
        """Return the share that used mutual TLS: `yes`, `no`, or a percentage."""
        if not self.total:
            return NONE
        if self.secured in (0, self.total):
            return "yes" if self.secured else "no"
        return formatting.percent(self.secured, self.total - self.secured)


class ResourceEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of a resource. `copy` is True for mirrored requests (D22).

    `security` is None when the API does not return it.
    """

    direction: Literal["from", "to"]
    peer: EdgePeer
    copy: bool
    metrics: Metrics
    security: Security | None = None


def parse_edges(document: Document) -> list[ResourceEdge]:
    """Return the edges of a list, incoming edges first. Raises HeadgateError when a metric can't be parsed."""
    parsed = [_edge(entry, entry.get("edge") or {}) for entry in items(document)]
    return sorted(parsed, key=lambda edge: (edge.direction, edge.copy, edge.peer))


def _edge(document: Document, edge: Mapping[str, Any]) -> ResourceEdge:
    return ResourceEdge(
        direction="from" if edge.get("direction") == "from" else "to",
        peer=_peer(edge.get("resource") or {}),
        copy=bool(edge.get("copy")),
        metrics=parse_metrics(document),
        security=_security(edge["security"]) if edge.get("security") else None,
    )


def _security(security: Mapping[str, Any]) -> Security:
    clients, servers = (tuple(map(str, security.get(side) or ())) for side in ("clients", "servers"))
    return Security(int(security.get("exchanged") or 0), int(security.get("secured") or 0), clients, servers)


def _peer(resource: Mapping[str, Any]) -> EdgePeer:
    return EdgePeer(*(str(resource.get(field) or "") for field in ("kind", "namespace", "name")))


def table(edges: Sequence[ResourceEdge], kind: MetricsKind, namespace: str, *, wide: bool, colors: bool) -> str:
    """Return a table of edges, with peers named relative to a resource of a kind in a namespace."""
    columns = _columns([edge.metrics for edge in edges], wide=wide)
    shown = list(_security_columns([edge.security for edge in edges], wide=wide))
    rows = [
        [
            Cell(edge.direction),
            Cell(edge.peer.named(kind.kind, namespace) + " copies" * edge.copy),
            *(column.cell(edge.metrics) for column in columns),
            *(Cell(text(edge.security) if edge.security else NONE) for _, text in shown),
        ]
        for edge in edges
    ]
    titles = [*(column.title for column in columns), *(title for title, _ in shown)]
    return format_table(["DIRECTION", "PEER", *titles], rows, left=2, colors=colors)


def _columns(values: Sequence[Metrics], *, wide: bool) -> tuple[MetricColumn, ...]:
    """Return the columns of metrics. Columns for denials and TCP connections are included only if an edge has any."""
    any_connections = (CONNECTIONS,) if nonzero_columns(values, CONNECTIONS, CONNECTION_FAILURES) else ()
    optional = (*nonzero_columns(values, DENIED), *any_connections, *nonzero_columns(values, CONNECTION_FAILURES))
    return (WIDE if wide else NARROW) + optional


def _security_columns(
    values: Sequence[Security | None], *, wide: bool
) -> Iterator[tuple[str, Callable[[Security], str]]]:
    """Yield the title and the text function of each column about mutual TLS and identities."""
    if any(values):
        yield "SECURED", lambda edge: edge.share
    if wide and any(values):
        yield "CLIENT_ID", lambda edge: ",".join(edge.clients) or NONE
        yield "SERVER_ID", lambda edge: ",".join(edge.servers) or NONE
