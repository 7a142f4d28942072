"""The tables of `kubectl get`: the columns of each kind and the cells of each object (`meta.k8s.io/v1` Table)."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.api import responses
from headgate.resources.cells import Cell
from headgate.resources.columns import Column
from headgate.resources.kind import Kind
from headgate.resources.meta import Object


def table(
    kind: Kind, objects: Sequence[Object], *, metadata: Mapping[str, Any], include: str, api: str
) -> dict[str, Any]:
    """Return the Table of objects of one kind.

    `include` selects the part of the object in each row: Metadata, Object or None. `api` is the version of meta.k8s.io.
    """
    titles = [
        responses.column(
            column.name,
            column.description or column.name,
            type="string" if column.type == "date" else column.type,  # a cell has the age, not the time
            format=column.format,
            priority=int(column.wide),
        )
        for column in kind.columns
    ]
    return responses.table(titles, [_row(obj, kind.columns, include, api) for obj in objects], api, metadata)


def _row(obj: Object, columns: Sequence[Column], include: str, api: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [_cell(column, obj) for column in columns]}
    if include != "None":
        row["object"] = obj if include == "Object" else responses.partial_metadata(obj["metadata"], api)
    return row


def _cell(column: Column, obj: Object) -> Cell:
    """Return a cell. A field of the wrong type becomes `<invalid>`, so that the other rows are shown."""
    try:
        return column.shown(obj)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "<invalid>"
