"""The tables of the inspect API for `kubectl get` (`meta.k8s.io/v1` Table)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.api import responses
from headgate.api.inspect.resource import Columns


def table(
    columns: Columns, objects: Sequence[Any], api: str, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a Table with a row for each object; `api` is the version of meta.k8s.io, `metadata` that of the list."""
    titles = [responses.column("Name", "Name.", format="name"), *(responses.column(*column[:2]) for column in columns)]
    rows = [
        {
            "cells": [obj.metadata.name, *(cell(obj) for _, _, cell in columns)],
            "object": responses.partial_metadata(obj.metadata, api),
        }
        for obj in objects
    ]
    return responses.table(titles, rows, api, metadata)
