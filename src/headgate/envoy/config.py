"""The configuration of a proxy: named resources by type, as bytes with a digest of their content."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import Message

CHAIN = "type.googleapis.com/envoy.config.listener.v3.FilterChain"
CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
SCOPES = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
RUNTIME = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  # a type URL

ORDER = (RUNTIME, CLUSTER, ENDPOINTS, SECRET, CHAIN, ROUTES, SCOPES, LISTENER)
"""All resource types, in the order in which a proxy receives them. Scopes with inline routes precede the listeners that
use them."""
TypeUrl: TypeAlias = str


class Part(NamedTuple):
    """One resource before it is encoded.

    `render(*arguments)` returns the message and depends on nothing else, so the memo uses the Part as a key. `needs`
    are the clusters that a proxy must have before it gets this resource.
    """

    type_url: TypeUrl
    name: str
    render: Callable[..., Message]
    arguments: tuple[Hashable, ...]
    needs: tuple[str, ...] = ()


class Encoded(NamedTuple):
    """One encoded resource: `body` is a serialized `envoy.service.discovery.v3.Resource`, `digest` its version.

    `needs` has the clusters that a proxy must have before it gets this resource.
    """

    body: bytes
    digest: str
    needs: frozenset[str] = frozenset()


class Resources(Mapping[str, Encoded]):
    """The resources of one type for one proxy, by name.

    `common` is one mapping that several proxies share; it stays the same object until something in it changes. `own`
    are the resources of this proxy alone. No name is in both.
    """

    __slots__ = ("common", "own")

    def __init__(self, common: Mapping[str, Encoded], own: Mapping[str, Encoded]) -> None:
        self.common = common
        self.own = own

    def __getitem__(self, name: str) -> Encoded:
        own = self.own.get(name)
        return self.common[name] if own is None else own

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.common

    def __iter__(self) -> Iterator[str]:
        return chain(self.common, self.own)

    def __len__(self) -> int:
        return len(self.common) + len(self.own)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Resources) and (self.common is other.common or not (self.own or other.own)):
            return self.common == other.common and self.own == other.own
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(other.get(name) == encoded for name, encoded in self.items())

    def has_same_parts_as(self, other: "Resources") -> bool:
        """Return whether `common` and `own` are identical to those of `other`."""
        return self.common is other.common and self.own is other.own

    def get(self, name: str, default: Any = None) -> Any:
        """Return the resource of a name, or the default."""
        own = self.own.get(name)
        return self.common.get(name, default) if own is None else own

    __hash__ = None  # type: ignore[assignment]  # not hashable, like other mappings


ProxyConfig: TypeAlias = Mapping[TypeUrl, Mapping[str, Encoded]]
Configuration: TypeAlias = Mapping[TypeUrl, Resources]
"""The type of the configurations that `encode` returns; their values are `Resources`."""
NO_RESOURCES = Resources({}, {})
