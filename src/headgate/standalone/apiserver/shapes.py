"""The shapes of an answer: the object itself, a row of a table, or its metadata alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from headgate.api import media
from headgate.api.kinds import Served
from headgate.resources.meta import Object, Value
from headgate.standalone.apiserver.tables import table


class Shape(Value, frozen=True, kw_only=True):
    """The form in which one request wants its answer; `shape` is empty for the object itself."""

    served: Served
    shape: str = ""
    version: str = "v1"  # of meta.k8s.io
    include: str = "Metadata"  # what each row of a table carries

    def one(self, obj: Object) -> Mapping[str, Any]:
        """Return one object."""
        if self.shape == "Table":
            return self.many([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        return media.partial(obj["metadata"], self.version) if self.shape else obj

    def many(self, items: Sequence[Object], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a list."""
        kind = self.served.kind.kind
        if self.shape == "Table":
            return table(self.served.kind, items, metadata=metadata, include=self.include, api=self.version)
        if not self.shape:
            return {"kind": f"{kind}List", "apiVersion": self.served.api_version, "metadata": metadata, "items": items}
        return media.partial_list([obj["metadata"] for obj in items], self.version, metadata)

    def events(self) -> Callable[[Object], Mapping[str, Any]]:
        """Return what writes the objects of a watch: of tables, only the first one describes the columns."""
        if self.shape != "Table":
            return self.one
        first = True

        def row(obj: Object) -> Mapping[str, Any]:
            nonlocal first
            rows = self.one(obj)
            if not first:
                rows = {**rows, "columnDefinitions": None}
            first = False
            return rows

        return row


def shape_of(request: Request, served: Served) -> Shape:
    """Read the form that a request wants. Raises ApiError 406, 400."""
    form = media.wanted_form(request.headers.get("accept", ""), media.SHAPES)
    if not form.shape:
        return Shape(served=served)
    include = media.included(request.query_params)
    return Shape(served=served, shape=form.shape, version=media.table_version(form), include=include)
