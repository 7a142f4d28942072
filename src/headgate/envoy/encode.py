"""A View to the bytes that its proxy is to hold.

What proxies of one kind have in common is put together once in a build, so a further sidecar costs little more than what
is its own. What comes out as it was in the last build is the same object, so whoever has looked through it knows it again
(`xds.session`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from google.protobuf.message import Message

from headgate.envoy import inbound, outbound, pb, tap
from headgate.envoy.config import NOTHING, ORDER, RUNTIME, Configuration, Encoded, ProxyConfig, Resources, TypeUrl
from headgate.envoy.outbound import Group
from headgate.envoy.parts import Part
from headgate.envoy.reach import Callers, callers
from headgate.envoy.view import SIDECAR, View
from headgate.model.routing import Mesh

DIGEST_BYTES = 12


Join = Callable[[Resources, Resources], Resources]


class Placed(NamedTuple):
    """One encoded resource, and where in a configuration it belongs."""

    type_url: TypeUrl
    name: str
    encoded: Encoded


class Joined(NamedTuple):
    """What several proxies have in common, what one of them has besides, and both together."""

    common: Configuration
    own: Configuration
    both: Configuration


class Memo:
    """Encoded resources by the value that they came from; what the last build did not use is dropped."""

    def __init__(self) -> None:
        self._kept: dict[Group, tuple[Placed, ...]] = {}
        self._used: dict[Group, tuple[Placed, ...]] = {}
        self._kept_joins: dict[Hashable, Joined] = {}
        self._used_joins: dict[Hashable, Joined] = {}
        self._mesh: Mesh | None = None
        self._common: dict[Hashable, Common] = {}
        self.encoded = 0  # resources encoded anew, ever: the cost of a change, counted

    def turn(self) -> None:
        """Begin a new build."""
        self._kept, self._used = self._used, {}
        self._kept_joins, self._used_joins = self._used_joins, {}
        self._mesh, self._common = None, {}

    def get(self, group: Group) -> tuple[Placed, ...]:
        """Return what was encoded from an equal group, or encode it now."""
        found = self._used.get(group) or self._kept.get(group)
        if found is None:
            found = tuple(_encode(part) for part in group.make(*group.arguments))
            self.encoded += len(found)
        self._used[group] = found
        return found

    def joined(self, who: Hashable, common: Configuration, own: Configuration, join: Join) -> Configuration:
        """Return both together; types that are as they were when the same was last asked are the same objects."""
        last = self._used_joins.get(who) or self._kept_joins.get(who) or Joined({}, {}, {})
        both = {type_url: _union(type_url, common, own, last, join) for type_url in ORDER}
        self._used_joins[who] = Joined(common, own, both)
        return both

    def common(self, view: View) -> "Common":
        """Return what a proxy has in common with all of its kind in this mesh."""
        if self._mesh is not view.mesh:
            self._mesh, self._common = view.mesh, {}
        kind = (view.node.role, bool(view.node.proxy_port), view.credential is not None)
        if kind not in self._common:
            self._common[kind] = Common(kind, view, self)
        return self._common[kind]


class Common:
    """What proxies of one kind have in common: resources by Service, and put together for whoever may call the same."""

    def __init__(self, kind: Hashable, view: View, memo: Memo) -> None:
        self._kind = kind
        self._memo = memo
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
        self._everywhere: dict[str, Configuration] = {}
        self._homes: dict[tuple[str, str], Configuration] = {}

    def config(self, view: View) -> Configuration:
        """Return what all have who are the same as a proxy, in the same namespace."""
        identity = view.identity if self._callers else ""
        key = view.home, identity
        if key not in self._homes:
            near = ((service, self._memo.get(group)) for service, group in outbound.of_home(view))
            found = _assembled(found for service, found in near if self.knows(identity, service))
            self._homes[key] = self._memo.joined((self._kind, *key), self._without_home(identity), found, _merged)
        return self._homes[key]

    def _without_home(self, identity: str) -> Configuration:
        """Return what does not depend on a namespace."""
        if identity not in self._everywhere:
            found = _assembled(found for service, found in self._placed if self.knows(identity, service))
            self._everywhere[identity] = self._memo.joined((self._kind, identity), {}, found, _merged)
        return self._everywhere[identity]

    def knows(self, identity: str, service: str) -> bool:
        """Say whether somebody is told of a Service at all."""
        may = self._callers.get(service) if self._callers else None
        return may is None or identity in may


def encode(view: View, memo: Memo) -> Configuration:
    """Encode everything that a proxy is to hold; equal parts come out of the memo as the same bytes."""
    own = _assembled(memo.get(outbound.alone(part)) for part in _own(view))
    return memo.joined(view.node.id, memo.common(view).config(view), own, _beside)


def _own(view: View) -> Iterator[Part]:
    """Yield what is a proxy's own."""
    yield from outbound.of_node(view)
    if view.workload:
        mesh = view.mesh
        yield from inbound.parts(view.workload, domain=mesh.domain, trust_domain=mesh.trust_domain)


def _union(type_url: TypeUrl, common: Configuration, own: Configuration, last: Joined, join: Join) -> Resources:
    """Return the resources of a type: one of the two where the other is empty, and the last ones where both are the same."""
    found, more = common.get(type_url, NOTHING), own.get(type_url, NOTHING)
    if found is last.common.get(type_url, NOTHING) and more == last.own.get(type_url, NOTHING):
        return last.both.get(type_url, NOTHING)
    return join(found, more) if more else found


def _merged(found: Resources, more: Resources) -> Resources:
    """Join what several proxies have in common."""
    return Resources({**found.common, **more.common}, {})


def _beside(found: Resources, own: Resources) -> Resources:
    """Join what several proxies have in common with what is one proxy's own."""
    return Resources(found.common, own.common)


def _assembled(several: Iterable[Iterable[Placed]]) -> Configuration:
    config: dict[TypeUrl, dict[str, Encoded]] = {type_url: {} for type_url in ORDER}
    for group in several:
        for type_url, name, encoded in group:
            config[type_url][name] = encoded
    return {type_url: Resources(found, {}) if found else NOTHING for type_url, found in config.items()}


def _encode(part: Part) -> Placed:
    encoded = encode_resource(part.name, part.render(*part.arguments), frozenset(part.needs))
    return Placed(part.type_url, part.name, encoded)


def with_tap(config: ProxyConfig, share: int) -> ProxyConfig:
    """Return a configuration by which a proxy records a share of its requests, in millionths (`tap`); 0 is off."""
    return {**config, RUNTIME: _runtime(share)}


@lru_cache
def _runtime(share: int) -> Resources:
    return Resources({tap.LAYER: encode_resource(tap.LAYER, tap.runtime(share))}, {})


def encode_resource(name: str, message: Message, needs: frozenset[str] = frozenset()) -> Encoded:
    """Serialise one resource; its version is a digest of its content, so equal content is never news."""
    packed = pb.pack(message)
    digest = blake2b(packed.value, digest_size=DIGEST_BYTES).hexdigest()
    body = pb.Resource(name=name, version=digest, resource=packed).SerializeToString(deterministic=True)
    return Encoded(body, digest, needs)
