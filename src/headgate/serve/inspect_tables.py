"""The answers of the inspect API as `kubectl get` shows them (`meta.k8s.io/v1` Table)."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from headgate.figures import NONE, age
from headgate.resources import times
from headgate.resources.inspect import Proxy
from headgate.serve.inspect_query import Resource

Columns: TypeAlias = tuple[tuple[str, str, Callable[[Any], str]], ...]
"""Title, description and content of each column; the name comes first by itself."""


def table(resource: Resource, items: Sequence[Any], api: str) -> dict[str, Any]:
    """Return a Table with a line for each object."""
    columns = _COLUMNS[resource.plural]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{api}",
        "metadata": {},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "Name.", "priority": 0},
            *(
                {"name": title, "type": "string", "format": "", "description": text, "priority": 0}
                for title, text, _ in columns
            ),
        ],
        "rows": [
            {
                "cells": [item.metadata.name, *(content(item) for _, _, content in columns)],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": f"meta.k8s.io/{api}",
                    "metadata": item.metadata,
                },
            }
            for item in items
        ],
    }


def _since(moment: str) -> str:
    return age(time.time() - times.seconds(moment)) if moment else NONE


def _counts(name: str) -> Callable[[Proxy], str]:
    def content(proxy: Proxy) -> str:
        found = next((item for item in proxy.status.types if item.type == name), None)
        if found is None:
            return NONE
        return str(found.held) if found.held == found.resources else f"{found.held}/{found.resources}"

    return content


_COLUMNS: Mapping[str, Columns] = {
    "proxies": (
        ("State", "InSync, Lagging, Refused or Disconnected.", lambda item: item.status.state),
        (
            "Last_ACK",
            "How long ago the proxy last acknowledged anything.",
            lambda item: _since(item.status.last_acknowledged),
        ),
        *(
            (name.capitalize(), f"{name.capitalize()} that it holds, of those that it is to hold.", _counts(name))
            for name in ("clusters", "endpoints", "listeners", "routes", "secrets")
        ),
    ),
}
