"""A resource of the inspect API as one value (D29): its names, verbs, types, columns and the functions that answer requests.

Routing, discovery, OpenAPI, Tables and the attributes for RBAC derive from these values.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from headgate.api.exposition import Families
from headgate.api.inspect.watches import Authorize, Identity, Watches
from headgate.api.resource_attributes import AUTHORIZE, USER, ResourceAttributes
from headgate.api.status import ApiError
from headgate.plane.inspector import Inspector
from headgate.resources.inspect import GROUP, VERSION, ObjectName

CREATE, WATCH = "create", "watch"
Columns: TypeAlias = tuple[tuple[str, str, Callable[[Any], str]], ...]
"""The columns after the first one (the name): title, description, and the function that returns an object's cell."""


class InspectSources(NamedTuple):
    """The sources of answers, and their `watches`. `families` returns the metrics for Prometheus. Streams end when `closing` is set.

    Without a running mesh, `inspector` is None. Without `families`, another address has the metrics.
    """

    inspector: Inspector | None
    closing: asyncio.Event
    watches: Watches
    families: Families | None = None


class InspectCall(NamedTuple):
    """A request for a path."""

    sources: InspectSources
    request: Request
    path: "InspectPath"

    @property
    def query(self) -> QueryParams:
        """The query parameters."""
        return self.request.query_params

    @property
    def authorize(self) -> Authorize | None:
        """Checks again what authorized the request; None if that cannot change."""
        return getattr(self.request.state, AUTHORIZE, None)

    @property
    def user(self) -> str:
        """The name of the user; empty where there is one user."""
        name: str = getattr(self.request.state, USER, "")
        return name

    @property
    def watched(self) -> Hashable:
        """What distinguishes the objects of this path from those of other paths. Raises ApiError 400."""
        path, resource = self.path, self.path.resource
        given = [read(self.query.get(name, "")) for name, read in resource.parameters.items()]
        return (resource.plural, path.namespace, path.name, path.selected if resource.makes_selected else "", *given)

    @property
    def inspector(self) -> Inspector:
        """The inspector of the running mesh. Raises ApiError 501 without one."""
        if self.sources.inspector is None:
            raise ApiError(501, "no mesh is running; start one with `headgate up`")
        return self.sources.inspector


Get: TypeAlias = Callable[[InspectCall], Awaitable[msgspec.Struct | None]]
"""Returns an object, or a list with `items`; None if the object does not exist. Raises HeadgateError."""
Connect: TypeAlias = Callable[[InspectCall], Awaitable[Response]]


class Subresource(NamedTuple):
    """A part of an object, with the verb get: an object of type `shape`, or a response of another form from `connect`."""

    kind: str
    shape: type[msgspec.Struct] | None = None
    get: Get | None = None
    connect: Connect | None = None


def _name_of(obj: Any) -> Identity:
    return obj.metadata.namespace, obj.metadata.name


class InspectResource(NamedTuple):
    """A resource. It has the verb of each function; a resource without any has only subresources.

    `create` answers a question, which is the body of the request, and stores nothing. The objects of a resource that
    `spans_namespaces` can also be requested without a namespace. `identity` distinguishes the objects of a list. If the
    resource `makes_selected`, its `list` leaves out objects that the field selector of the path leaves out. `parameters` has the query
    parameters on which `get` and `list` depend, each with the function that reads its text, empty without one, and raises ApiError 400.
    """

    plural: str
    kind: str
    shape: type[msgspec.Struct] | None = None
    get: Get | None = None
    list: Get | None = None
    create: Get | None = None
    columns: Columns = ()
    namespaced: bool = True
    spans_namespaces: bool = False
    identity: Callable[[Any], Identity] = _name_of
    makes_selected: bool = False
    parameters: Mapping[str, Callable[[str], Hashable]] = {}
    subresources: Mapping[str, Subresource] = {}

    @property
    def verbs(self) -> Sequence[str]:
        """The verbs for discovery and RBAC."""
        verbs = [verb for verb in ("get", "list", CREATE) if getattr(self, verb)]
        return [*verbs, WATCH] if self.list else verbs


class InspectPath(NamedTuple):
    """A parsed path: one object, or all objects of a namespace or of the mesh. `subresource` may be empty.

    With `watch`, the request is for a stream of changes. `selected` is the only name that its field selector selects.
    """

    resource: InspectResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    selected: str = ""

    @property
    def verb(self) -> str:
        """The RBAC verb for the request: `watch`, or that of the path."""
        return WATCH if self.watch else self.action

    @property
    def action(self) -> str:
        """The verb of the path: `get`, `list`, or `create` for a resource that has only this verb."""
        if self.name:
            return "get"
        return CREATE if self.resource.create else "list"

    @property
    def object_name(self) -> ObjectName:
        """The name of the object."""
        return ObjectName(namespace=self.namespace, name=self.name)

    @property
    def attributes(self) -> ResourceAttributes:
        """The resource and verb that RBAC authorizes."""
        return ResourceAttributes(
            group=GROUP,
            version=VERSION,
            resource=self.resource.plural,
            subresource=self.subresource,
            verb=self.verb,
            namespace=self.namespace,
            name=self.name or self.selected,
        )
