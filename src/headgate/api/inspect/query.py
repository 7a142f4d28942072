"""The resources of the inspect API, and the parser of its paths (D29)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headgate.api.resource_attributes import ResourceAttributes
from headgate.api.status import no_such_path
from headgate.kinds import TAPPABLE_KINDS
from headgate.resources.inspect import GROUP, VERSION
from headgate.resources.meta import Value


class Resource(Value, frozen=True, kw_only=True):
    """A resource. `verbs` are the RBAC verbs that it supports: get and list; or create, which answers and stores nothing.

    `subresources` maps the name of each subresource to its kind; their verb is get. A resource without verbs has only
    subresources. The objects of a resource that `spans_namespaces` can also be requested without a namespace.
    """

    plural: str
    kind: str
    verbs: tuple[str, ...] = ("get", "list")
    namespaced: bool = True
    spans_namespaces: bool = False
    subresources: Mapping[str, str] = {}


INSPECT = GROUP, VERSION
CREATE = "create"
TAP, TAP_VALUES = "tap", "tapvalues"
SIDECAR = "sidecar"
RESTORATION = "restoration"
METRICS = "metrics"
_TAPS = {TAP: "TapEvent", TAP_VALUES: "TapEvent"}


def _subresources(kind: str) -> Mapping[str, str]:
    return {**_TAPS, SIDECAR: "PodSidecar"} if kind == "Pod" else _TAPS


RESOURCES: Mapping[str, Resource] = {
    item.plural: item
    for item in (
        Resource(plural="proxies", kind="Proxy", subresources={"config": "ProxyConfig"}),
        Resource(plural="explanations", kind="Explanation", verbs=("list",)),
        Resource(plural="plans", kind="Plan", verbs=(CREATE,), namespaced=False),
        Resource(plural="findings", kind="Finding", verbs=("list",)),
        Resource(plural="callrecords", kind="CallRecord", verbs=("list",)),
        Resource(
            plural="revisions",
            kind="Revision",
            spans_namespaces=True,
            subresources={RESTORATION: "RevisionRestoration"},
        ),
        Resource(plural="meshstatuses", kind="MeshStatus", namespaced=False, subresources={METRICS: "MeshMetrics"}),
        *(
            Resource(
                plural=one.plural,
                kind=one.kind,
                verbs=(),
                namespaced=one.namespaced,
                subresources=_subresources(one.kind),
            )
            for one in TAPPABLE_KINDS
        ),
    )
}


class InspectPath(NamedTuple):
    """A parsed path: one object, or all objects of a namespace or of the mesh. `subresource` may be empty."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def verb(self) -> str:
        """The RBAC verb for the path: `get`, `list`, or `create` for a resource that has only this verb."""
        if self.resource.verbs == (CREATE,):
            return "get" if self.name else CREATE
        return "get" if self.name else "list"

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
            name=self.name,
        )


def parse_path(parts: Sequence[str]) -> InspectPath:
    """Parse the path after the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`. Raises ApiError 404."""
    inside = len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in _TAPS
    namespace, rest = (parts[1], parts[2:]) if inside else ("", parts)
    match rest:
        case [plural, *tail] if all(parts) and len(tail) <= 2 and (resource := RESOURCES.get(plural)):
            name, subresource = (*tail, "", "")[:2]
        case _:
            raise no_such_path()
    path = InspectPath(resource, namespace, name, subresource)
    if not _exists(path):
        raise no_such_path()
    return path


def _exists(path: InspectPath) -> bool:
    resource = path.resource
    if path.subresource not in resource.subresources if path.subresource else path.verb not in resource.verbs:
        return False
    may_omit = resource.namespaced and (resource.spans_namespaces or not path.name)
    return resource.namespaced == bool(path.namespace) or may_omit
