"""`kubectl traffic edges`: with whom a resource exchanged traffic, both ways, with numbers (R86, R91, R92)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from headgate.figures import latency
from headgate.plugin.api import Document, items
from headgate.plugin.kinds import OUTSIDE, Kind
from headgate.plugin.numbers import Numbers, failures, numbers_of, percent, rate
from headgate.plugin.table import written

EVERYBODY = "everybody"


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
            return self.namespace or self.kind or EVERYBODY
        name = self.name if self.namespace in ("", namespace) else f"{self.namespace}/{self.name}"
        return name if self.kind in ("", kind) else f"{self.kind.lower()}/{name}"


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of a resource. `copy`: these are copies of requests, as mirrors make them (D22)."""

    direction: Literal["from", "to"]
    peer: Peer
    copy: bool
    numbers: Numbers


def exchanges_of(document: Document) -> list[Exchange]:
    """Return the edges in a list of them, what came in first. Raises HeadgateError when numbers can't be read."""
    found = [_exchange(item, item.get("edge") or {}) for item in items(document)]
    return sorted(found, key=lambda one: (one.direction, one.copy, one.peer))


def _exchange(item: Document, edge: Mapping[str, Any]) -> Exchange:
    return Exchange(
        direction="from" if edge.get("direction") == "from" else "to",
        peer=_peer(edge.get("resource") or {}),
        copy=bool(edge.get("copy")),
        numbers=numbers_of(item),
    )


def _peer(resource: Mapping[str, Any]) -> Peer:
    return Peer(*(str(resource.get(field) or "") for field in ("kind", "namespace", "name")))


def table(exchanges: Sequence[Exchange], kind: Kind, namespace: str, *, wide: bool = False) -> str:
    """Return edges as a table, as seen from a resource of that kind in that namespace."""
    columns = list(_columns([one.numbers for one in exchanges], wide=wide))
    rows = [
        [
            one.direction,
            one.peer.named(kind.kind, namespace) + " copies" * one.copy,
            *(column.text(one.numbers) for column in columns),
        ]
        for one in exchanges
    ]
    return written(["DIRECTION", "PEER", *(column.title for column in columns)], rows, left=2)


class _Column(NamedTuple):
    """A figure: its title, and how it is written."""

    title: str
    text: Callable[[Numbers], str]


def _columns(several: Sequence[Numbers], *, wide: bool) -> Iterator[_Column]:
    """Yield what shows of these numbers: connections of ports that are not HTTP where there are any."""
    yield _Column("SUCCESS", percent)
    yield _Column("RPS", rate)
    if wide:
        yield _Column("LATENCY_P50", lambda one: latency(one.p50))
        yield _Column("LATENCY_P90", lambda one: latency(one.p90))
    yield _Column("LATENCY_P99", lambda one: latency(one.p99))
    if wide:
        yield _Column("FAILURES", failures)
    if any(one.connections or one.unreached for one in several):
        yield _Column("CONNECTIONS", lambda one: str(one.connections))
    if any(one.unreached for one in several):
        yield _Column("CONN_FAILURES", lambda one: str(one.unreached))
