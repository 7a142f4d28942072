"""`kubectl traffic edges`: with whom a resource exchanged traffic, both ways, with numbers (R86, R91, R92)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from headgate import formatting
from headgate.formatting import NONE
from headgate.plugin.api import Document, items
from headgate.plugin.kinds import OUTSIDE, Kind
from headgate.plugin.metrics import Metrics, parse_metrics
from headgate.plugin.table import (
    CONNECTION_FAILURES,
    CONNECTIONS,
    DENIED,
    NARROW,
    WIDE,
    Cell,
    Column,
    format_table,
    nonzero_columns,
)

ALL = "(all)"


class Peer(msgspec.Struct, frozen=True, order=True):
    """The other end of an edge; its fields are empty where the API tells less of it (R88)."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    def named(self, kind: str, namespace: str) -> str:
        """Return its name, as seen from a resource of that kind in that namespace: `foo`, `shop/foo`, `pod/foo`."""
        if self.kind == OUTSIDE:
            return f"({self.name or OUTSIDE.lower()})"
        if not self.name:
            return self.namespace or self.kind or ALL
        name = self.name if self.namespace in ("", namespace) else f"{self.namespace}/{self.name}"
        return name if self.kind in ("", kind) else f"{self.kind.lower()}/{name}"


class Security(msgspec.Struct, frozen=True):
    """How the requests and connections of an edge went: some by mutual TLS, between identities (SPIFFE IDs)."""

    exchanged: int
    secured: int
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()

    @property
    def share(self) -> str:
        """What went by mutual TLS: `yes`, `no`, or how much."""
        if not self.exchanged:
            return NONE
        if self.secured in (0, self.exchanged):
            return "yes" if self.secured else "no"
        return formatting.percent(self.secured, self.exchanged - self.secured)


class ResourceEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of a resource. `copy`: these are copies of requests, as mirrors make them (D22).

    `security` is None where the API does not say it.
    """

    direction: Literal["from", "to"]
    peer: Peer
    copy: bool
    metrics: Metrics
    security: Security | None = None


def parse_edges(document: Document) -> list[ResourceEdge]:
    """Return the edges in a list of them, what came in first. Raises HeadgateError when numbers can't be read."""
    found = [_exchange(item, item.get("edge") or {}) for item in items(document)]
    return sorted(found, key=lambda one: (one.direction, one.copy, one.peer))


def _exchange(item: Document, edge: Mapping[str, Any]) -> ResourceEdge:
    return ResourceEdge(
        direction="from" if edge.get("direction") == "from" else "to",
        peer=_peer(edge.get("resource") or {}),
        copy=bool(edge.get("copy")),
        metrics=parse_metrics(item),
        security=_security(edge["security"]) if edge.get("security") else None,
    )


def _security(found: Mapping[str, Any]) -> Security:
    clients, servers = (tuple(map(str, found.get(side) or ())) for side in ("clients", "servers"))
    return Security(int(found.get("exchanged") or 0), int(found.get("secured") or 0), clients, servers)


def _peer(resource: Mapping[str, Any]) -> Peer:
    return Peer(*(str(resource.get(field) or "") for field in ("kind", "namespace", "name")))


def table(exchanges: Sequence[ResourceEdge], kind: Kind, namespace: str, *, wide: bool, colors: bool) -> str:
    """Return edges as a table, as seen from a resource of that kind in that namespace."""
    columns = _columns([one.metrics for one in exchanges], wide=wide)
    shown = list(_security_columns([one.security for one in exchanges], wide=wide))
    rows = [
        [
            Cell(one.direction),
            Cell(one.peer.named(kind.kind, namespace) + " copies" * one.copy),
            *(column.cell(one.metrics) for column in columns),
            *(Cell(text(one.security) if one.security else NONE) for _, text in shown),
        ]
        for one in exchanges
    ]
    titles = [*(column.title for column in columns), *(title for title, _ in shown)]
    return format_table(["DIRECTION", "PEER", *titles], rows, left=2, colors=colors)


def _columns(several: Sequence[Metrics], *, wide: bool) -> tuple[Column, ...]:
    """Return the usual figures; refusals, and connections of ports that are not HTTP, where there are any."""
    any_connections = (CONNECTIONS,) if nonzero_columns(several, CONNECTIONS, CONNECTION_FAILURES) else ()
    beyond = (*nonzero_columns(several, DENIED), *any_connections, *nonzero_columns(several, CONNECTION_FAILURES))
    return (WIDE if wide else NARROW) + beyond


def _security_columns(
    several: Sequence[Security | None], *, wide: bool
) -> Iterator[tuple[str, Callable[[Security], str]]]:
    """Yield titles and texts of what went by mutual TLS, and between which identities."""
    if any(several):
        yield "SECURED", lambda one: one.share
    if wide and any(several):
        yield "CLIENT_ID", lambda one: ",".join(one.clients) or NONE
        yield "SERVER_ID", lambda one: ",".join(one.servers) or NONE
