"""What a proxy sees to the bytes that it is to hold.

Each Service, each port of a Gateway and each proxy is rendered by itself, from a value with all that it depends on. What
came of an equal value in the last build is taken again, as the very same objects: so a reader that has looked through a
part of a configuration knows it by identity (`xds.session`). What proxies of one kind have in common is put together once
in a build; a further proxy costs what is its own.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from google.protobuf.message import Message

from headgate.envoy import inbound, outbound, pb, secrets, tap
from headgate.envoy.config import (
    NO_RESOURCES,
    ORDER,
    RUNTIME,
    Configuration,
    Encoded,
    Part,
    ProxyConfig,
    Resources,
    TypeUrl,
)
from headgate.envoy.view import SIDECAR, MeshSettings, MeshView, ProxyKind, View, mesh_settings
from headgate.model.routing import Frontend, Mesh

DIGEST_BYTES = 8  # only versions of one resource are compared
EMPTY: Configuration = dict.fromkeys(ORDER, NO_RESOURCES)
MemoKey = tuple[Hashable, ...]
T = TypeVar("T")


CombineResources = Callable[[Resources, Resources, Resources], Resources]
"""Joins two parts of a type; the last is what came of the parts of the last build."""


class EncodedPart:
    """A part with its bytes."""

    __slots__ = ("__weakref__", "encoded", "part")

    def __init__(self, part: Part, encoded: Encoded) -> None:
        self.part = part
        self.encoded = encoded


class EncodedGroup(NamedTuple):
    """What was rendered from one value."""

    source: tuple[Any, ...]
    made: tuple[EncodedPart, ...]


class Combined(NamedTuple):
    """A configuration, and the two that it is made of."""

    common: Configuration
    more: Configuration
    both: Configuration


class LastBuilds(Generic[T]):
    """What was made in this build and in the one before, by what it is for."""

    def __init__(self) -> None:
        self.now: dict[MemoKey, T] = {}
        self.last: dict[MemoKey, T] = {}

    def begin_build(self) -> None:
        """Begin a new build, and drop what the last one did not use."""
        self.last, self.now = self.now, {}

    def get(self, key: MemoKey) -> T | None:
        """Return what was made most recently."""
        found = self.now.get(key)
        return self.last.get(key) if found is None else found


class Memo:
    """What the last build made; a build takes of it whatever would come out the same."""

    def __init__(self) -> None:
        self.encoded = 0  # resources encoded since the beginning: the cost of a change, counted
        self._made: WeakValueDictionary[Part, EncodedPart] = WeakValueDictionary()  # while a group has it
        self._groups: LastBuilds[EncodedGroup] = LastBuilds()
        self._owns: LastBuilds[tuple[tuple[Any, ...], Configuration]] = LastBuilds()
        self._combined: LastBuilds[Combined] = LastBuilds()
        self._mesh: Mesh | None = None
        self._settings: MeshSettings | None = None
        self._common: dict[ProxyKind, CommonResources] = {}

    def begin_build(self) -> None:
        """Begin a new build."""
        for builds in (self._groups, self._owns, self._combined):
            builds.begin_build()
        self._mesh = None

    def encode_group(
        self, key: MemoKey, render: Callable[..., Iterable[Part]], *source: Any
    ) -> tuple[EncodedPart, ...]:
        """Return what `render` makes of a value, encoded."""
        found = self._groups.get(key)
        if found is None or found.source != source:
            found = EncodedGroup(source, tuple(map(self._encode, render(*source))))
        self._groups.now[key] = found
        return found.made

    def _encode(self, part: Part) -> EncodedPart:
        found = self._made.get(part)
        if found is None:
            self.encoded += 1
            encoded = encode_resource(part.name, part.render(*part.arguments), frozenset(part.needs))
            found = self._made[part] = EncodedPart(part, encoded)
        return found

    def own_resources(self, view: View) -> Configuration:
        """Return what one proxy has for itself."""
        key, settings = ("own", view.node.id), self._use_mesh(view.mesh)
        source = (view.node, view.workload, view.credential, settings)
        found = self._owns.get(key)
        if found is None or found[0] != source:
            groups = [self.encode_group(("proxy", view.node.id), outbound.of_proxy, view.node, view.workload, settings)]
            if view.credential:
                groups.append(self.encode_group(("secrets", view.node.id), secrets.parts, view.credential))
            if view.workload:
                domains = (settings.domain, settings.trust_domain)
                groups.append(self.encode_group(("inbound", view.node.id), inbound.parts, view.workload, *domains))
            found = source, _reuse_equal(found[1] if found else EMPTY, _by_type(groups))
        self._owns.now[key] = found
        return found[1]

    def common_resources(self, view: View) -> "CommonResources":
        """Return what a proxy has in common with others of its kind, to be rendered yet where it is a new mesh."""
        self._use_mesh(view.mesh)
        kind = view.kind
        if kind not in self._common:
            self._common[kind] = CommonResources(MeshView(view.mesh, kind), self)
        return self._common[kind]

    def combine_common(self, key: MemoKey, common: Configuration, more: Configuration) -> Configuration:
        """Return two configurations as one that several proxies have in common, as far as possible the last build's."""
        return self._combine(_merge, key, common, more)

    def combine_with_own(self, key: MemoKey, common: Configuration, own: Configuration) -> Configuration:
        """Return what proxies have in common together with what is one proxy's own."""
        return self._combine(_add_own, key, common, own)

    def _combine(
        self, join: CombineResources, key: MemoKey, common: Configuration, more: Configuration
    ) -> Configuration:
        last = self._combined.get(key) or Combined(EMPTY, EMPTY, EMPTY)
        if common is not last.common or more is not last.more:
            changed = {
                item: found
                for item in ORDER
                if common[item] is not last.common[item] or more[item] is not last.more[item]
                if (found := join(common[item], more[item], last.both[item])) is not last.both[item]
            }
            last = Combined(common, more, {**last.both, **changed} if changed else last.both)
        self._combined.now[key] = last
        return last.both

    def _use_mesh(self, mesh: Mesh) -> MeshSettings:
        """Begin with a mesh, unless it is the one that was looked at last."""
        if self._settings is None or self._mesh is not mesh:
            self._mesh, self._settings, self._common = mesh, mesh_settings(mesh), {}
        return self._settings


class CommonResources:
    """What proxies of one kind have in common: put together once for all that see the same Services."""

    def __init__(self, seen: MeshView, memo: Memo) -> None:
        self._memo = memo
        self._kind = seen.kind
        self._mesh = seen.mesh
        self._allowed_sources = seen.allowed_sources or {}
        self._views = seen.services()
        self._gateways = seen.gateways()
        self._made: dict[str, tuple[EncodedPart, ...]] = {}
        self._found: dict[MemoKey, Configuration] = {}

    def render(self) -> Iterator[None]:
        """Render Service by Service what is not rendered yet."""
        for view in self._views:
            name = view.front.service
            self._made[name] = self._memo.encode_group((self._kind, name), outbound.of_service, view)
            yield

    def visible_to(self, identity: str, home: str) -> Configuration:
        """Return what all see that have an identity, in a namespace."""
        visible = tuple(self._restricted.get(identity, ()))
        near = home if home in self._with_local_names else ""
        key = (self._kind, visible, near)
        if key not in self._found:
            self._found[key] = self._with_short_names(visible, near) if near else self._visible_resources(visible)
        return self._found[key]

    @cached_property
    def _visible_to_all(self) -> Configuration:
        """What all of the kind see."""
        for _ in self.render():
            pass
        gateways = [
            self._memo.encode_group(("gateway", view.port.gateway, view.port.port), outbound.of_gateway, view)
            for view in self._gateways
        ]
        known = (made for service, made in self._made.items() if self._allowed_sources.get(service) is None)
        return self._memo.combine_common((self._kind,), EMPTY, _by_type((*known, *gateways)))

    @cached_property
    def _restricted(self) -> Mapping[str, Sequence[str]]:
        """The Services that not all see, by the identity that sees them."""
        found: dict[str, list[str]] = defaultdict(list)
        for service, identities in self._allowed_sources.items():
            for identity in identities or ():
                found[identity].append(service)
        return found

    @cached_property
    def _with_local_names(self) -> Mapping[str, Sequence[Frontend]]:
        """The Services of each namespace, where they have short names."""
        found: dict[str, list[Frontend]] = defaultdict(list)
        for front in self._mesh.frontends if self._kind.http_proxy and self._kind.role == SIDECAR else ():
            found[front.service.partition("/")[0]].append(front)
        return found

    def _visible_resources(self, visible: tuple[str, ...]) -> Configuration:
        everywhere = self._visible_to_all
        if not visible:
            return everywhere
        found = _by_type(self._made[service] for service in visible)
        return self._memo.combine_common((self._kind, visible), everywhere, found)

    def _with_short_names(self, visible: tuple[str, ...], home: str) -> Configuration:
        """Return what is seen, with the short names of the Services in a namespace."""
        found = _by_type(
            self._memo.encode_group(("short names", front.service), outbound.short_names, front, self._mesh.domain)
            for front in self._with_local_names[home]
            if self._allowed_sources.get(front.service) is None or front.service in visible
        )
        return self._memo.combine_common((self._kind, visible, home), self._visible_resources(visible), found)


def encode(view: View, memo: Memo) -> Configuration:
    """Encode everything that a proxy is to hold."""
    common = memo.common_resources(view).visible_to(view.identity, view.client_namespace)
    return memo.combine_with_own(("proxy", view.node.id), common, memo.own_resources(view))


def encode_all(views: Iterable[View], memo: Memo) -> Iterator[tuple[str, Configuration] | None]:
    """Yield what each proxy is to hold with its node id, and nothing now and then: in between, others may have their turns."""
    for view in views:
        yield from memo.common_resources(view).render()
        yield view.node.id, encode(view, memo)


def _merge(one: Resources, other: Resources, last: Resources) -> Resources:
    found = Resources({**one.common, **other.common}, {}) if one and other else one or other
    return last if found == last else found


def _add_own(common: Resources, own: Resources, _last: Resources) -> Resources:
    return Resources(common.common, own.common) if own else common


def _reuse_equal(last: Configuration, found: Configuration) -> Configuration:
    """Return a configuration in which types that are equal to the last ones are the very same objects."""
    return {item: last[item] if found[item] == last[item] else found[item] for item in ORDER}


def _by_type(groups: Iterable[Iterable[EncodedPart]]) -> Configuration:
    config: dict[TypeUrl, dict[str, Encoded]] = {}
    for group in groups:
        for made in group:
            config.setdefault(made.part.type_url, {})[made.part.name] = made.encoded
    return {item: Resources(config[item], {}) if item in config else NO_RESOURCES for item in ORDER}


def with_tap(config: ProxyConfig, share: int) -> ProxyConfig:
    """Return a configuration by which a proxy records a share of its requests, in millionths (`tap`); 0 is off."""
    return {**config, RUNTIME: _runtime(share)}


@lru_cache
def _runtime(share: int) -> Resources:
    return Resources({tap.LAYER: encode_resource(tap.LAYER, tap.runtime_resource(share))}, {})


def encode_resource(name: str, message: Message, needs: frozenset[str] = frozenset()) -> Encoded:
    """Serialise one resource; its version is a digest of its content."""
    packed = pb.pack(message)
    digest = blake2b(packed.value, digest_size=DIGEST_BYTES).hexdigest()
    body = pb.Resource(name=name, version=digest, resource=packed).SerializeToString(deterministic=True)
    return Encoded(body, digest, needs)
