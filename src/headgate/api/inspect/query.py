"""The resources of the inspect API, and what a path of it asks for (D29)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headgate.api.attributes import Attributes
from headgate.api.status import no_such_path
from headgate.kinds import TAPPED
from headgate.resources.inspect import GROUP, VERSION
from headgate.resources.meta import Value


class Resource(Value, frozen=True, kw_only=True):
    """A resource that can be read, and never written. `verbs` are those that RBAC knows: get, list, or both.

    `subresources` are kinds by name, which are read with get; a resource without verbs has nothing else.
    """

    plural: str
    kind: str
    verbs: tuple[str, ...] = ("get", "list")
    namespaced: bool = True
    subresources: Mapping[str, str] = {}


INSPECT = GROUP, VERSION
TAP, TAP_VALUES = "tap", "tapvalues"
_TAPS = {TAP: "TapEvent", TAP_VALUES: "TapEvent"}

RESOURCES: Mapping[str, Resource] = {
    item.plural: item
    for item in (
        Resource(plural="proxies", kind="Proxy", subresources={"config": "ProxyConfig"}),
        Resource(plural="explanations", kind="Explanation", verbs=("list",)),
        Resource(plural="findings", kind="Finding", verbs=("list",)),
        Resource(plural="meshstatuses", kind="MeshStatus", namespaced=False),
        *(
            Resource(plural=one.plural, kind=one.kind, verbs=(), namespaced=one.namespaced, subresources=_TAPS)
            for one in TAPPED
        ),
    )
}


class Asked(NamedTuple):
    """What a request asks for: an object, or all of a namespace or of the mesh, and perhaps a subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def verb(self) -> str:
        """The verb that RBAC knows it by."""
        return "get" if self.name else "list"

    @property
    def attributes(self) -> Attributes:
        """What RBAC knows it by."""
        return Attributes(
            group=GROUP,
            version=VERSION,
            resource=self.resource.plural,
            subresource=self.subresource,
            verb=self.verb,
            namespace=self.namespace,
            name=self.name,
        )


def asked_of(parts: Sequence[str]) -> Asked:
    """Read what follows the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`. Raises ApiError 404."""
    inside = len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in _TAPS
    namespace, rest = (parts[1], parts[2:]) if inside else ("", parts)
    match rest:
        case [plural, *tail] if all(parts) and len(tail) <= 2 and (resource := RESOURCES.get(plural)):
            name, subresource = (*tail, "", "")[:2]
        case _:
            raise no_such_path()
    asked = Asked(resource, namespace, name, subresource)
    if not _exists(asked):
        raise no_such_path()
    return asked


def _exists(asked: Asked) -> bool:
    resource = asked.resource
    if asked.subresource not in resource.subresources if asked.subresource else asked.verb not in resource.verbs:
        return False
    return resource.namespaced == bool(asked.namespace) or (resource.namespaced and not asked.name)
