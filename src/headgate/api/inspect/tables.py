"""The tables of the inspect API for `kubectl get` (`meta.k8s.io/v1` Table)."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from headgate.api import responses
from headgate.api.inspect.query import Resource
from headgate.formatting import NONE, age
from headgate.resources.inspect import Finding, Proxy
from headgate.resources.meta import epoch_seconds

Columns: TypeAlias = tuple[tuple[str, str, Callable[[Any], str]], ...]
"""The columns after the first one (the name): title, description, and the function that returns an object's cell."""


def columns(resource: Resource) -> Columns | None:
    """Return the columns of a resource, None when it has no table."""
    return _COLUMNS.get(resource.plural)


def table(columns: Columns, items: Sequence[Any], api: str) -> dict[str, Any]:
    """Return a Table with a row for each object; `api` is the version of meta.k8s.io."""
    titles = [responses.column("Name", "Name.", format="name"), *(responses.column(*column[:2]) for column in columns)]
    rows = [
        {
            "cells": [item.metadata.name, *(content(item) for _, _, content in columns)],
            "object": responses.partial_metadata(item.metadata, api),
        }
        for item in items
    ]
    return responses.table(titles, rows, api)


def _since(moment: str) -> str:
    return age(time.time() - epoch_seconds(moment)) if moment else NONE


def _counts(name: str) -> Callable[[Proxy], str]:
    def content(proxy: Proxy) -> str:
        found = next((item for item in proxy.status.types if item.type == name), None)
        if found is None:
            return NONE
        return str(found.held) if found.held == found.resources else f"{found.held}/{found.resources}"

    return content


def _sentence(finding: Finding) -> str:
    return f"{finding.field}: {finding.message}" if finding.field else finding.message


_COLUMNS: Mapping[str, Columns] = {
    "proxies": (
        ("State", "The state of the proxy: InSync, Lagging, Refused or Disconnected.", lambda item: item.status.state),
        (
            "Last_ACK",
            "Time since the proxy's last ACK.",
            lambda item: _since(item.status.last_acknowledged),
        ),
        *(
            (
                name.capitalize(),
                f"The number of acknowledged {name}, and of all {name} of the proxy.",
                _counts(name),
            )
            for name in ("clusters", "endpoints", "listeners", "routes", "secrets")
        ),
    ),
    "findings": (
        ("Severity", "The severity: error, warning or note.", lambda item: item.severity),
        ("Reason", "The reason, as in conditions and Events.", lambda item: item.reason),
        ("Object", "The object with the problem.", lambda item: f"{item.object.kind}/{item.object.name}"),
        ("Message", "The field and the problem.", _sentence),
    ),
    "callrecords": (
        ("Port", "The port of the pods.", lambda item: str(item.port)),
        ("Protocol", "The protocol: http or tcp.", lambda item: item.protocol),
        ("Caller", "The caller: a ServiceAccount, or a pod or address for plaintext.", lambda item: item.caller_name),
        ("Calls", "The number of allowed requests or connections.", lambda item: str(item.calls)),
        ("Would_Refuse", "The calls that an audit would refuse.", lambda item: str(item.would_refuse)),
        ("Last", "Time since the last call.", lambda item: _since(item.last)),
    ),
    "revisions": (
        ("Age", "Time since the change.", lambda item: _since(item.time)),
        ("By", "The field managers that wrote.", lambda item: ", ".join(sorted({c.by or NONE for c in item.changes}))),
        (
            "Objects",
            "The changed objects.",
            lambda item: ", ".join(f"{c.object.kind}/{c.object.name}" for c in item.changes) or item.reason,
        ),
        ("Effect", "What the change did to requests and access.", lambda item: "; ".join(item.effect) or NONE),
    ),
    "meshstatuses": (
        ("Healthy", "Whether the mesh has no problem.", lambda item: "yes" if item.status.healthy else "no"),
        (
            "Proxies",
            "The number of proxies in sync, and of all proxies.",
            lambda item: f"{item.status.proxies.in_sync}/{item.status.proxies.total}",
        ),
        ("Errors", "The number of errors.", lambda item: str(item.status.findings.errors)),
        ("Warnings", "The number of warnings.", lambda item: str(item.status.findings.warnings)),
        ("Age", "Time since headgate started.", lambda item: _since(item.status.started)),
    ),
}
