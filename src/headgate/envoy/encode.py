"""A View to the bytes that its proxy is to hold.

What proxies of one kind have in common is put together once in a build, so a further sidecar costs little more than what
is its own.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from google.protobuf.message import Message

from headgate.envoy import inbound, outbound, pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, Encoded, ProxyConfig, TypeUrl
from headgate.envoy.outbound import Group
from headgate.envoy.parts import Part
from headgate.envoy.reach import Callers, callers
from headgate.envoy.view import SIDECAR, View
from headgate.model.routing import Mesh

DIGEST_BYTES = 12
ORDER = (CLUSTER, ENDPOINTS, SECRET, LISTENER, ROUTES, SCOPES)


class Placed(NamedTuple):
    """One encoded resource, and where in a configuration it belongs."""

    type_url: TypeUrl
    name: str
    encoded: Encoded


class Memo:
    """Encoded resources by the value that they came from; what the last build did not use is dropped."""

    def __init__(self) -> None:
        self._kept: dict[Group, tuple[Placed, ...]] = {}
        self._used: dict[Group, tuple[Placed, ...]] = {}
        self._mesh: Mesh | None = None
        self._common: dict[Hashable, Common] = {}
        self.encoded = 0  # resources encoded anew, ever: the cost of a change, counted

    def turn(self) -> None:
        """Begin a new build."""
        self._kept, self._used = self._used, {}
        self._mesh, self._common = None, {}

    def get(self, group: Group) -> tuple[Placed, ...]:
        """Return what was encoded from an equal group, or encode it now."""
        found = self._used.get(group) or self._kept.get(group)
        if found is None:
            found = tuple(_encode(part) for part in group.make(*group.arguments))
            self.encoded += len(found)
        self._used[group] = found
        return found

    def common(self, view: View) -> "Common":
        """Return what a proxy has in common with all of its kind in this mesh."""
        if self._mesh is not view.mesh:
            self._mesh, self._common = view.mesh, {}
        kind = (view.node.role, bool(view.node.proxy_port), view.credential is not None)
        if kind not in self._common:
            self._common[kind] = Common(view, self)
        return self._common[kind]


class Common:
    """What proxies of one kind have in common: resources by Service, and put together for whoever may call the same."""

    def __init__(self, view: View, memo: Memo) -> None:
        # A transparent sidecar that passes on what it doesn't know would call a Service that is left out in plaintext, past
        # the proxies, instead of being refused by them.
        unknown_is_passed_on = view.is_redirected and view.mesh.passthrough
        scoped = view.mesh.scoped and view.node.role == SIDECAR and not unknown_is_passed_on
        self._callers: Mapping[str, Callers] | None = callers(view.mesh) if scoped else None
        self._placed = (
            *((service, memo.get(outbound.alone(part))) for service, part in outbound.of_tables(view)),
            *(("", memo.get(outbound.alone(part))) for part in outbound.of_gateways(view)),
            *((service, memo.get(group)) for service, group in outbound.of_frontends(view)),
        )
        self._configs: dict[str, ProxyConfig] = {}

    def config(self, identity: str) -> ProxyConfig:
        """Return what all have who are that."""
        key = "" if self._callers is None else identity
        if key not in self._configs:
            self._configs[key] = _assembled(found for service, found in self._placed if self.knows(identity, service))
        return self._configs[key]

    def knows(self, identity: str, service: str) -> bool:
        """Say whether somebody is told of a Service at all."""
        may = self._callers.get(service) if self._callers else None
        return may is None or identity in may


def encode(view: View, memo: Memo) -> ProxyConfig:
    """Encode everything that a proxy is to hold; equal parts come out of the memo as the same bytes."""
    common = memo.common(view)
    config = common.config(view.identity)
    own = _assembled(memo.get(group) for group in _own(view, common))
    return {type_url: {**found, **own[type_url]} if own[type_url] else found for type_url, found in config.items()}


def _own(view: View, common: Common) -> Iterator[Group]:
    """Yield what is a proxy's own, or that of its namespace."""
    for part in outbound.of_node(view):
        yield outbound.alone(part)
    for service, group in outbound.of_home(view):
        if common.knows(view.identity, service):
            yield group
    if view.workload:
        mesh = view.mesh
        for part in inbound.parts(view.workload, domain=mesh.domain, trust_domain=mesh.trust_domain):
            yield outbound.alone(part)


def _assembled(several: Iterable[Iterable[Placed]]) -> ProxyConfig:
    config: dict[TypeUrl, dict[str, Encoded]] = {type_url: {} for type_url in ORDER}
    for group in several:
        for type_url, name, encoded in group:
            config[type_url][name] = encoded
    return config


def _encode(part: Part) -> Placed:
    encoded = encode_resource(part.name, part.render(*part.arguments), frozenset(part.needs))
    return Placed(part.type_url, part.name, encoded)


def encode_resource(name: str, message: Message, needs: frozenset[str] = frozenset()) -> Encoded:
    """Serialise one resource; its version is a digest of its content, so equal content is never news."""
    packed = pb.pack(message)
    digest = blake2b(packed.value, digest_size=DIGEST_BYTES).hexdigest()
    body = pb.Resource(name=name, version=digest, resource=packed).SerializeToString(deterministic=True)
    return Encoded(body, digest, needs)
