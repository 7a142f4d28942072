"""Encode the view of a proxy as its configuration.

Each Service, each port of a Gateway and each proxy is rendered separately, from a value with everything that its
resources depend on. If that value equals the value of the last build, the encoded resources are reused as identical
objects. Readers can therefore compare parts of configurations by identity (`xds.session`). Resources that proxies of
one kind share are combined once per build; a further proxy costs only its own resources.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from google.protobuf.message import Message

from headgate.envoy import inbound, localhost, names, outbound, pb, secrets, tap, traces
from headgate.envoy.config import (
    NO_RESOURCES,
    ORDER,
    RUNTIME,
    SECRET,
    Configuration,
    Encoded,
    Part,
    ProxyConfig,
    Resources,
    TypeUrl,
)
from headgate.envoy.node_ids import SIDECAR
from headgate.envoy.view import (
    HostSources,
    HostView,
    MeshSettings,
    MeshView,
    ProxyKind,
    ProxyView,
    host_view,
    mesh_settings,
)
from headgate.memo import LastBuilds, Stages
from headgate.model.access import source_includes
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.identities import Credential
from headgate.model.routing import Frontend, HostRoutes, Mesh
from headgate.shared_map import SharedMap, replaced

DIGEST_BYTES = 8  # short, as only versions of the same resource are compared
EMPTY_CONFIGURATION: Configuration = dict.fromkeys(ORDER, NO_RESOURCES)
MemoKey = tuple[Hashable, ...]


CombineResources = Callable[[Resources, Resources, Resources], Resources]
"""A function that combines two sets of resources of one type. The third argument is the last build's result, which is
returned if it is equal."""


class EncodedPart:
    """A part and its encoded resource."""

    __slots__ = ("__weakref__", "encoded", "part")

    def __init__(self, part: Part, encoded: Encoded) -> None:
        self.part = part
        self.encoded = encoded


class EncodedGroup(NamedTuple):
    """The parts that were rendered from one value, `source`, and their resources."""

    source: tuple[Any, ...]
    parts: tuple[EncodedPart, ...]
    resources: Mapping[TypeUrl, Mapping[str, Encoded]]


class EncodedHosts(NamedTuple):
    """The encoded hosts of a Gateway port, and all their resources."""

    groups: SharedMap[str, EncodedGroup]
    resources: Mapping[TypeUrl, Mapping[str, Encoded]]


class Combined(NamedTuple):
    """Two configurations and their combination."""

    common: Configuration
    more: Configuration
    both: Configuration


class Memo:
    """The results of the last build, which the next build reuses where inputs are equal."""

    def __init__(self) -> None:
        self.encoded = 0  # the number of resources encoded so far
        self._encoded_parts: WeakValueDictionary[Part, EncodedPart] = WeakValueDictionary()  # drops unused parts
        self._groups: LastBuilds[EncodedGroup] = LastBuilds()
        self._hosts: LastBuilds[Stages] = LastBuilds()
        self._own: LastBuilds[tuple[tuple[Any, ...], Configuration]] = LastBuilds()
        self._combined: LastBuilds[Combined] = LastBuilds()
        self._mesh: Mesh | None = None
        self._settings: MeshSettings | None = None
        self._common: dict[ProxyKind, CommonResources] = {}

    def begin_build(self) -> None:
        """Begin a new build."""
        for builds in (self._groups, self._hosts, self._own, self._combined):
            builds.begin_build()
        self._mesh = None

    def encode_group(self, key: MemoKey, render: Callable[..., Iterable[Part]], *source: Any) -> EncodedGroup:
        """Render and encode the parts of `source`; reuse the last result of `key` if `source` is equal."""
        group = self._group(self._groups.get(key), render, *source)
        self._groups.now[key] = group
        return group

    def encode_hosts(
        self, key: MemoKey, sources: HostSources, hosts: SharedMap[str, HostRoutes]
    ) -> Mapping[TypeUrl, Mapping[str, Encoded]]:
        """Render and encode the hosts of a Gateway port that have a scope of their own; return their resources.

        A host whose routes are the same object as in the last build is skipped, if nothing else has changed.
        """
        stages = self._hosts.now[key] = self._hosts.get(key) or Stages()
        views = stages.each_item(host_view, sources, hosts)
        return stages.following(_with_hosts, _NO_HOSTS, stages.each_item(self._encode_host, None, views)).resources

    def _encode_host(self, _shared: None, _name: str, view: HostView) -> EncodedGroup:
        return self._group(None, outbound.of_host, view)

    def _group(self, last: EncodedGroup | None, render: Callable[..., Iterable[Part]], *source: Any) -> EncodedGroup:
        if last is not None and last.source == source:
            return last
        parts = tuple(map(self._encode, render(*source)))
        resources: dict[TypeUrl, dict[str, Encoded]] = defaultdict(dict)
        for encoded_part in parts:
            resources[encoded_part.part.type_url][encoded_part.part.name] = encoded_part.encoded
        return EncodedGroup(source, parts, resources)

    def _encode(self, part: Part) -> EncodedPart:
        encoded_part = self._encoded_parts.get(part)
        if encoded_part is None:
            self.encoded += 1
            encoded = encode_resource(part.name, part.render(*part.arguments), frozenset(part.needs))
            encoded_part = self._encoded_parts[part] = EncodedPart(part, encoded)
        return encoded_part

    def own_resources(self, view: ProxyView) -> Configuration:
        """Return the resources that only this proxy has."""
        key, settings = ("own", view.node.id), self._use_mesh(view.mesh)
        source = (view.node, view.workload, view.credential, settings)
        entry = self._own.get(key)
        if entry is None or entry[0] != source:
            groups = [self.encode_group(("proxy", view.node.id), outbound.of_proxy, view.node, view.workload, settings)]
            if view.credential:
                groups.append(self.encode_group(("secrets", view.node.id), secrets.parts, view.credential))
            if view.workload:
                domains = (settings.domain, settings.trust_domain)
                groups.append(self.encode_group(("inbound", view.node.id), inbound.parts, view.workload, *domains))
            entry = (
                source,
                _reuse_equal(entry[1] if entry else EMPTY_CONFIGURATION, _by_type(group.resources for group in groups)),
            )
        self._own.now[key] = entry
        return entry[1]

    def secret_resources(self, node_id: str, credential: Credential) -> Resources:
        """Return the secrets of a proxy whose other resources a revision renders."""
        group = self.encode_group(("secrets", node_id), secrets.parts, credential)
        return Resources(NO_RESOURCES.common, group.resources[SECRET])

    def common_resources(self, view: ProxyView) -> "CommonResources":
        """Return the resources that a proxy shares with other proxies of its kind; they are rendered on demand."""
        self._use_mesh(view.mesh)
        kind = view.kind
        if kind not in self._common:
            self._common[kind] = CommonResources(MeshView(view.mesh, kind), self)
        return self._common[kind]

    def combine_common(self, key: MemoKey, common: Configuration, more: Configuration) -> Configuration:
        """Combine two configurations that several proxies share; reuse objects of the last build where equal."""
        return self._combine(_merge, key, common, more)

    def combine_with_own(self, key: MemoKey, common: Configuration, own: Configuration) -> Configuration:
        """Combine the shared configuration with one proxy's own resources."""
        return self._combine(_add_own, key, common, own)

    def _combine(
        self, join: CombineResources, key: MemoKey, common: Configuration, more: Configuration
    ) -> Configuration:
        last = self._combined.get(key) or Combined(EMPTY_CONFIGURATION, EMPTY_CONFIGURATION, EMPTY_CONFIGURATION)
        if common is not last.common or more is not last.more:
            changed = {
                type_url: joined
                for type_url in ORDER
                if common[type_url] is not last.common[type_url] or more[type_url] is not last.more[type_url]
                if (joined := join(common[type_url], more[type_url], last.both[type_url])) is not last.both[type_url]
            }
            last = Combined(common, more, {**last.both, **changed} if changed else last.both)
        self._combined.now[key] = last
        return last.both

    def _use_mesh(self, mesh: Mesh) -> MeshSettings:
        """Return the settings of a mesh; if the mesh has changed, drop the common resources first."""
        if self._settings is None or self._mesh is not mesh:
            self._mesh, self._settings, self._common = mesh, mesh_settings(mesh), {}
        return self._settings


class CommonResources:
    """The resources that proxies of one kind share, combined once for all proxies with the same visible Services."""

    def __init__(self, mesh_view: MeshView, memo: Memo) -> None:
        self._memo = memo
        self._kind = mesh_view.kind
        self._mesh = mesh_view.mesh
        self._allowed_sources = mesh_view.allowed_sources or {}
        self._views = mesh_view.services()
        self._mesh_view = mesh_view
        self._groups: dict[str, EncodedGroup] = {}  # by Service
        self._found: dict[MemoKey, Configuration] = {}

    def render(self) -> Iterator[None]:
        """Render the Services that are not rendered yet, one per step."""
        for view in self._views:
            name = view.front.service
            self._groups[name] = self._memo.encode_group((self._kind, name), outbound.of_service, view)
            yield

    def visible_to(self, identity: str, namespace: str) -> Configuration:
        """Return the resources for proxies with an identity; Services of `namespace` also have their short names."""
        including = (source for source in self._beginnings if source_includes(source, identity))
        services = [name for source in (identity, *including) for name in self._restricted.get(source, ())]
        visible = tuple(dict.fromkeys(services))
        short_names_of = namespace if namespace in self._with_local_names else ""
        key = (self._kind, visible, short_names_of)
        if key not in self._found:
            resources = self._with_short_names(visible, short_names_of) if short_names_of else self._visible(visible)
            self._found[key] = resources
        return self._found[key]

    @cached_property
    def _visible_to_all(self) -> Configuration:
        """The resources that are visible to all proxies of the kind."""
        for _ in self.render():
            pass
        resources = [
            group.resources for service, group in self._groups.items() if self._allowed_sources.get(service) is None
        ]
        for view, hosts in self._mesh_view.gateways():
            key = (self._kind, names.gateway_port(view.port))
            own = self._memo.encode_group(key, outbound.of_gateway, view)
            all_hosts = self._memo.encode_hosts(key, self._mesh_view.host_sources(view.port), hosts)
            resources += [own.resources, all_hosts]
        if self._kind.role != SIDECAR:
            resources.append(self._short_names_of_pods(DEFAULT_NAMESPACE, ()).resources)
        if port := self._kind.localhost_port:
            listed, further = localhost.listed(self._mesh)
            memo_key = (self._kind, names.LOCALHOST)
            resources.append(
                self._memo.encode_group(memo_key, localhost.of_other_hosts, port, listed, further).resources
            )
        return self._memo.combine_common((self._kind,), EMPTY_CONFIGURATION, _by_type(resources))

    @cached_property
    def _restricted(self) -> Mapping[str, Sequence[str]]:
        """The Services that only some identities may call, by source (`model.access.source_includes`)."""
        services: dict[str, list[str]] = defaultdict(list)
        for service, identities in self._allowed_sources.items():
            for identity in identities or ():
                services[identity].append(service)
        return services

    @cached_property
    def _beginnings(self) -> Sequence[str]:
        """The sources that stand for all ServiceAccounts of a namespace."""
        return [source for source in self._restricted if source.endswith("*")]

    @cached_property
    def _with_local_names(self) -> Mapping[str, Sequence[Frontend]]:
        """The Services of each namespace; empty unless proxies of this kind use short names."""
        fronts: dict[str, list[Frontend]] = defaultdict(list)
        for front in self._mesh.frontends if self._kind.http_proxy and self._kind.role == SIDECAR else ():
            fronts[front.service.partition("/")[0]].append(front)
        return fronts

    def _visible(self, visible: tuple[str, ...]) -> Configuration:
        for_all = self._visible_to_all
        if not visible:
            return for_all
        added = _by_type(self._groups[service].resources for service in visible)
        return self._memo.combine_common((self._kind, visible), for_all, added)

    def _with_short_names(self, visible: tuple[str, ...], namespace: str) -> Configuration:
        """Return the visible resources and the short names of the Services in a namespace."""
        groups = [
            self._memo.encode_group(
                ("short names", front.service), outbound.short_names, front, self._mesh.domain
            ).resources
            for front in self._with_local_names[namespace]
            if self._allowed_sources.get(front.service) is None or front.service in visible
        ]
        short_names = _by_type([*groups, self._short_names_of_pods(namespace, visible).resources])
        return self._memo.combine_common((self._kind, visible, namespace), self._visible(visible), short_names)

    def _short_names_of_pods(self, namespace: str, visible: tuple[str, ...]) -> EncodedGroup:
        named = tuple(
            (ref, pods)
            for ref, pods in self._mesh_view.named_pods.items()
            if ref.service.startswith(f"{namespace}/")
            and (self._allowed_sources.get(ref.service) is None or ref.service in visible)
        )
        return self._memo.encode_group(
            ("short names of pods", self._kind, namespace, visible), outbound.short_names_of_pods, named
        )


def encode(view: ProxyView, memo: Memo) -> Configuration:
    """Return the configuration of a proxy."""
    common = memo.common_resources(view).visible_to(view.identity, view.client_namespace)
    return memo.combine_with_own(("proxy", view.node.id), common, memo.own_resources(view))


def encode_all(views: Iterable[ProxyView], memo: Memo) -> Iterator[tuple[str, Configuration] | None]:
    """Yield the node ID and configuration of each proxy, and None between steps, so that the caller can pause."""
    for view in views:
        yield from memo.common_resources(view).render()
        yield view.node.id, encode(view, memo)


def _merge(resources: Resources, other: Resources, last: Resources) -> Resources:
    merged = Resources({**resources.common, **other.common}, {}) if resources and other else resources or other
    return last if merged == last else merged


def _add_own(common: Resources, own: Resources, _last: Resources) -> Resources:
    return Resources(common.common, own.common) if own else common


def _reuse_equal(last: Configuration, config: Configuration) -> Configuration:
    """Return `config`, but with the objects of `last` for each type whose resources are equal."""
    return {type_url: last[type_url] if config[type_url] == last[type_url] else config[type_url] for type_url in ORDER}


def _by_type(groups: Iterable[Mapping[TypeUrl, Mapping[str, Encoded]]]) -> Configuration:
    config = _united(groups)
    return {type_url: Resources(config[type_url], {}) if type_url in config else NO_RESOURCES for type_url in ORDER}


def _united(groups: Iterable[Mapping[TypeUrl, Mapping[str, Encoded]]]) -> Mapping[TypeUrl, Mapping[str, Encoded]]:
    config: dict[TypeUrl, dict[str, Encoded]] = defaultdict(dict)
    for group in groups:
        for type_url, resources in group.items():
            config[type_url].update(resources)
    return config


_NO_HOSTS = EncodedHosts(SharedMap(), {})


def _with_hosts(last: EncodedHosts, groups: SharedMap[str, EncodedGroup]) -> EncodedHosts:
    """Return the hosts of a Gateway port; new resources are in the order of their hosts."""
    changed, gone = replaced(last.groups, groups)
    replacing = ((last.groups[host], group) for host, group in changed.items() if host in last.groups)
    if gone or not all(_keeps_names(before, after) for before, after in replacing):
        # another host may have a resource with a name that one host lost
        return EncodedHosts(groups, _united(groups[host].resources for host in sorted(groups)))
    return EncodedHosts(groups, _united((last.resources, *(changed[host].resources for host in sorted(changed)))))


def _keeps_names(before: EncodedGroup, after: EncodedGroup) -> bool:
    """Return whether `after` has all resources that `before` had, perhaps in other versions."""
    return all(
        resources.keys() <= after.resources.get(type_url, {}).keys() for type_url, resources in before.resources.items()
    )


def with_runtime(config: ProxyConfig, share: int, sampling: int | None = None) -> ProxyConfig:
    """Return a configuration with a proxy's runtime layer.

    The proxy records `share` millionths of its requests (`tap`); 0 records none. It begins traces for `sampling`
    ten-thousandths of requests (`traces`); None if there are no traces.
    """
    return {**config, RUNTIME: _runtime(share, sampling)}


@lru_cache
def _runtime(share: int, sampling: int | None) -> Resources:
    more = {} if sampling is None else traces.runtime_fields(sampling)
    return Resources({tap.LAYER: encode_resource(tap.LAYER, tap.runtime_resource(share, more))}, {})


def encode_resource(name: str, message: Message, needs: frozenset[str] = frozenset()) -> Encoded:
    """Serialize one resource; its version is a digest of its content."""
    packed = pb.pack(message)
    digest = blake2b(packed.value, digest_size=DIGEST_BYTES).hexdigest()
    body = pb.Resource(name=name, version=digest, resource=packed).SerializeToString(deterministic=True)
    return Encoded(body, digest, needs)
