"""The tables of TrafficMetrics for `kubectl get`: success, requests per second, latencies (`meta.k8s.io/v1` Table)."""

from collections.abc import Iterator, Sequence
from typing import Any

from headgate.api import responses
from headgate.api.responses import column
from headgate.formatting import NONE, latency, percent, rate
from headgate.resources.metrics import TrafficMetrics
from headgate.telemetry.answers.answers import SHARES, Row


def table(
    rows: Sequence[Row], written: Sequence[TrafficMetrics], window: float, *, include: str, api: str
) -> dict[str, Any]:
    """Return a Table of rows. `include` is the part of an object in its row: Metadata, Object or None."""
    edges = any(row.edge.peer for row in rows)
    backends = any(row.backend for row in rows)
    lines = [
        {"cells": _cells(row, window, edges=edges, backends=backends), **_object(metrics, include, api)}
        for row, metrics in zip(rows, written, strict=True)
    ]
    return responses.table(list(_columns(edges=edges, backends=backends)), lines, api)


def _object(metrics: TrafficMetrics, include: str, api: str) -> dict[str, Any]:
    if include == "None":
        return {}
    return {"object": metrics if include == "Object" else responses.partial_metadata(metrics.metadata, api)}


def _columns(*, edges: bool, backends: bool) -> Iterator[dict[str, object]]:
    yield column("Name", "Name of the resource.", format="name")
    if edges:
        yield column("Direction", "The direction of the traffic: to the peer, or from the peer.")
        yield column("Peer", "The resource at the other end of the traffic.")
        yield column("Copies", "Whether these are mirrored copies of requests.")
    if backends:
        yield column("Backend", "The backend of the split.")
        yield column("Weight", "The weight of the backend.")
    yield column("Success", "Share of the requests that succeeded.")
    yield column("RPS", "Requests per second.")
    for share in ("P50", "P90", "P99"):
        yield column(f"Latency_{share}", "Time until the end of the response.")
    for name, description in (
        ("Requests", "Requests in the window, except denied requests."),
        ("Failures", "Failed requests."),
        ("Connections", "TCP connections to ports that are not HTTP."),
        ("Conn_Failures", "TCP connections that no server accepted."),
        ("Denied", "Requests denied by access rules."),
        ("Conn_Denied", "TCP connections denied by access rules."),
    ):
        yield column(name, description, priority=1, type="integer")
    if edges:
        yield column("Secured", "Share of the requests and connections that used mutual TLS.", priority=1)
    else:
        yield column("Meshed", "The number of pods with a sidecar, and of all pods.", priority=1)


def _cells(row: Row, window: float, *, edges: bool, backends: bool) -> list[str | int]:
    counts = row.exchanged
    requests = counts.success + counts.failure
    cells: list[str | int] = [row.about.name]
    if edges:
        peer = row.edge.peer
        cells += [row.edge.direction, f"{peer.kind} {peer}".strip() if peer else NONE, "yes" if row.edge.copy else ""]
    if backends:
        cells += [row.backend.name, str(row.backend.weight)] if row.backend else [NONE, NONE]
    cells += [
        percent(counts.success, counts.failure),
        rate(requests, window),
        *(latency(seconds) for seconds in counts.latencies),
        *([NONE] * (len(SHARES) - len(counts.latencies))),
        requests,
        counts.failure,
        counts.connections,
        counts.unreached,
        counts.denied,
        counts.denied_connections,
        _secured(row) if edges else _meshed(row),
    ]
    return cells


def _secured(row: Row) -> str:
    security = row.security
    return percent(security.secured, security.exchanged - security.secured) if security else NONE


def _meshed(row: Row) -> str:
    return f"{row.mesh.meshed}/{row.mesh.pods}" if row.mesh else NONE
