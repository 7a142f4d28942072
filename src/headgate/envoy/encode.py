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
from headgate.envoy.config import NOTHING, ORDER, RUNTIME, Configuration, Encoded, Part, ProxyConfig, Resources, TypeUrl
from headgate.envoy.view import SIDECAR, Kind, MeshTerms, MeshView, View, mesh_terms
from headgate.model.routing import Frontend, Mesh

DIGEST_BYTES = 8  # only versions of one resource are compared
EMPTY: Configuration = dict.fromkeys(ORDER, NOTHING)
Place = tuple[Hashable, ...]
T = TypeVar("T")


Join = Callable[[Resources, Resources, Resources], Resources]
"""Joins two parts of a type; the last is what came of the parts of the last build."""


class Made:
    """A part with its bytes."""

    __slots__ = ("__weakref__", "encoded", "part")

    def __init__(self, part: Part, encoded: Encoded) -> None:
        self.part = part
        self.encoded = encoded


class Group(NamedTuple):
    """What was rendered from one value."""

    source: tuple[Any, ...]
    made: tuple[Made, ...]


class Joined(NamedTuple):
    """A configuration, and the two that it is made of."""

    common: Configuration
    more: Configuration
    both: Configuration


class Builds(Generic[T]):
    """What was made in this build and in the one before, by what it is for."""

    def __init__(self) -> None:
        self.now: dict[Place, T] = {}
        self.last: dict[Place, T] = {}

    def turn(self) -> None:
        """Begin a new build, and drop what the last one did not use."""
        self.last, self.now = self.now, {}

    def get(self, place: Place) -> T | None:
        """Return what was made most recently."""
        found = self.now.get(place)
        return self.last.get(place) if found is None else found


class Memo:
    """What the last build made; a build takes of it whatever would come out the same."""

    def __init__(self) -> None:
        self.encoded = 0  # resources encoded since the beginning: the cost of a change, counted
        self._made: WeakValueDictionary[Part, Made] = WeakValueDictionary()  # while a group has it
        self._groups: Builds[Group] = Builds()
        self._owns: Builds[tuple[tuple[Any, ...], Configuration]] = Builds()
        self._joined: Builds[Joined] = Builds()
        self._mesh: Mesh | None = None
        self._terms: MeshTerms | None = None
        self._common: dict[Kind, Common] = {}

    def turn(self) -> None:
        """Begin a new build."""
        for builds in (self._groups, self._owns, self._joined):
            builds.turn()
        self._mesh = None

    def group(self, place: Place, render: Callable[..., Iterable[Part]], *source: Any) -> tuple[Made, ...]:
        """Return what `render` makes of a value, encoded."""
        found = self._groups.get(place)
        if found is None or found.source != source:
            found = Group(source, tuple(map(self._encode, render(*source))))
        self._groups.now[place] = found
        return found.made

    def _encode(self, part: Part) -> Made:
        found = self._made.get(part)
        if found is None:
            self.encoded += 1
            encoded = encode_resource(part.name, part.render(*part.arguments), frozenset(part.needs))
            found = self._made[part] = Made(part, encoded)
        return found

    def own(self, view: View) -> Configuration:
        """Return what one proxy has for itself."""
        place, terms = ("own", view.node.id), self._look(view.mesh)
        source = (view.node, view.workload, view.credential, terms)
        found = self._owns.get(place)
        if found is None or found[0] != source:
            groups = [self.group(("proxy", view.node.id), outbound.of_proxy, view.node, view.workload, terms)]
            if view.credential:
                groups.append(self.group(("secrets", view.node.id), secrets.parts, view.credential))
            if view.workload:
                domains = (terms.domain, terms.trust_domain)
                groups.append(self.group(("inbound", view.node.id), inbound.parts, view.workload, *domains))
            found = source, _kept(found[1] if found else EMPTY, _assembled(groups))
        self._owns.now[place] = found
        return found[1]

    def common(self, view: View) -> "Common":
        """Return what a proxy has in common with others of its kind, to be rendered yet where it is a new mesh."""
        self._look(view.mesh)
        kind = view.kind
        if kind not in self._common:
            self._common[kind] = Common(MeshView(view.mesh, kind), self)
        return self._common[kind]

    def joined(self, place: Place, common: Configuration, more: Configuration) -> Configuration:
        """Return two configurations as one that several proxies have in common, as far as possible the last build's."""
        return self._joined_by(_merged, place, common, more)

    def whole(self, place: Place, common: Configuration, own: Configuration) -> Configuration:
        """Return what proxies have in common together with what is one proxy's own."""
        return self._joined_by(_beside, place, common, own)

    def _joined_by(self, join: Join, place: Place, common: Configuration, more: Configuration) -> Configuration:
        last = self._joined.get(place) or Joined(EMPTY, EMPTY, EMPTY)
        if common is not last.common or more is not last.more:
            news = {
                item: found
                for item in ORDER
                if common[item] is not last.common[item] or more[item] is not last.more[item]
                if (found := join(common[item], more[item], last.both[item])) is not last.both[item]
            }
            last = Joined(common, more, {**last.both, **news} if news else last.both)
        self._joined.now[place] = last
        return last.both

    def _look(self, mesh: Mesh) -> MeshTerms:
        """Begin with a mesh, unless it is the one that was looked at last."""
        if self._terms is None or self._mesh is not mesh:
            self._mesh, self._terms, self._common = mesh, mesh_terms(mesh), {}
        return self._terms


class Common:
    """What proxies of one kind have in common: put together once for all that see the same Services."""

    def __init__(self, seen: MeshView, memo: Memo) -> None:
        self._memo = memo
        self._kind = seen.kind
        self._mesh = seen.mesh
        self._callers = seen.callers or {}
        self._views = seen.services()
        self._gateways = seen.gateways()
        self._made: dict[str, tuple[Made, ...]] = {}
        self._found: dict[Place, Configuration] = {}

    def render(self) -> Iterator[None]:
        """Render Service by Service what is not rendered yet."""
        for view in self._views:
            name = view.front.service
            self._made[name] = self._memo.group((self._kind, name), outbound.of_service, view)
            yield

    def of(self, identity: str, home: str) -> Configuration:
        """Return what all see that have an identity, in a namespace."""
        visible = tuple(self._visible.get(identity, ()))
        near = home if home in self._near else ""
        place = (self._kind, visible, near)
        if place not in self._found:
            self._found[place] = self._with_short_names(visible, near) if near else self._seen(visible)
        return self._found[place]

    @cached_property
    def _everywhere(self) -> Configuration:
        """What all of the kind see."""
        for _ in self.render():
            pass
        gateways = [
            self._memo.group(("gateway", view.port.gateway, view.port.port), outbound.of_gateway, view)
            for view in self._gateways
        ]
        known = (made for service, made in self._made.items() if self._callers.get(service) is None)
        return self._memo.joined((self._kind,), EMPTY, _assembled((*known, *gateways)))

    @cached_property
    def _visible(self) -> Mapping[str, Sequence[str]]:
        """The Services that not all see, by the identity that sees them."""
        found: dict[str, list[str]] = defaultdict(list)
        for service, identities in self._callers.items():
            for identity in identities or ():
                found[identity].append(service)
        return found

    @cached_property
    def _near(self) -> Mapping[str, Sequence[Frontend]]:
        """The Services of each namespace, where they have short names."""
        found: dict[str, list[Frontend]] = defaultdict(list)
        for front in self._mesh.frontends if self._kind.proxy and self._kind.role == SIDECAR else ():
            found[front.service.partition("/")[0]].append(front)
        return found

    def _seen(self, visible: tuple[str, ...]) -> Configuration:
        everywhere = self._everywhere
        if not visible:
            return everywhere
        found = _assembled(self._made[service] for service in visible)
        return self._memo.joined((self._kind, visible), everywhere, found)

    def _with_short_names(self, visible: tuple[str, ...], home: str) -> Configuration:
        """Return what is seen, with the short names of the Services in a namespace."""
        found = _assembled(
            self._memo.group(("short names", front.service), outbound.short_names, front, self._mesh.domain)
            for front in self._near[home]
            if self._callers.get(front.service) is None or front.service in visible
        )
        return self._memo.joined((self._kind, visible, home), self._seen(visible), found)


def encode(view: View, memo: Memo) -> Configuration:
    """Encode everything that a proxy is to hold."""
    common = memo.common(view).of(view.identity, view.home)
    return memo.whole(("proxy", view.node.id), common, memo.own(view))


def encode_all(views: Iterable[View], memo: Memo) -> Iterator[tuple[str, Configuration] | None]:
    """Yield what each proxy is to hold with its node id, and nothing now and then: in between, others may have their turns."""
    for view in views:
        yield from memo.common(view).render()
        yield view.node.id, encode(view, memo)


def _merged(one: Resources, other: Resources, last: Resources) -> Resources:
    found = Resources({**one.common, **other.common}, {}) if one and other else one or other
    return last if found == last else found


def _beside(common: Resources, own: Resources, _last: Resources) -> Resources:
    return Resources(common.common, own.common) if own else common


def _kept(last: Configuration, found: Configuration) -> Configuration:
    """Return a configuration in which types that are equal to the last ones are the very same objects."""
    return {item: last[item] if found[item] == last[item] else found[item] for item in ORDER}


def _assembled(groups: Iterable[Iterable[Made]]) -> Configuration:
    config: dict[TypeUrl, dict[str, Encoded]] = {}
    for group in groups:
        for made in group:
            config.setdefault(made.part.type_url, {})[made.part.name] = made.encoded
    return {item: Resources(config[item], {}) if item in config else NOTHING for item in ORDER}


def with_tap(config: ProxyConfig, share: int) -> ProxyConfig:
    """Return a configuration by which a proxy records a share of its requests, in millionths (`tap`); 0 is off."""
    return {**config, RUNTIME: _runtime(share)}


@lru_cache
def _runtime(share: int) -> Resources:
    return Resources({tap.LAYER: encode_resource(tap.LAYER, tap.runtime(share))}, {})


def encode_resource(name: str, message: Message, needs: frozenset[str] = frozenset()) -> Encoded:
    """Serialise one resource; its version is a digest of its content."""
    packed = pb.pack(message)
    digest = blake2b(packed.value, digest_size=DIGEST_BYTES).hexdigest()
    body = pb.Resource(name=name, version=digest, resource=packed).SerializeToString(deterministic=True)
    return Encoded(body, digest, needs)
