"""What the proxies hold, by resource: how far they are with the ports that an object decides for.

Most proxies hold all that they are to hold, and those of one kind have the same listeners and routes. So which resources a
port is to them is found once for all of them (`Group`), those in sync are a number, and only the others are looked at.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from headgate.envoy import names
from headgate.envoy.config import (
    CHAIN,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NOTHING,
    ROUTES,
    SCOPES,
    Encoded,
    ProxyConfig,
    Resources,
    TypeUrl,
)
from headgate.envoy.names import GatewayRef, Place
from headgate.envoy.view import SIDECAR
from headgate.resources.meta import Value
from headgate.xds.fleet import Proxy
from headgate.xds.shelf import Rejected

MOST = 100  # resources that a proxy lags with by name; one that lags with more is looked at for each object
Resource: TypeAlias = tuple[TypeUrl, str]
NONE: frozenset[Resource] = frozenset()
_SIDECARS = f"{SIDECAR}/"
_Resources: TypeAlias = Mapping[str, Encoded]


class Progress(Value, frozen=True, kw_only=True):
    """How far the proxies are: how many hold it, which lag, and which refused it (with Envoy's words), by node id."""

    holding: int = 0
    lagging: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """How many proxies there are."""
        return self.holding + len(self.lagging) + len(self.refused)


class Group:
    """The proxies with the same listeners and routes of Services and Gateways."""

    def __init__(self, listeners: _Resources, routes: _Resources, scopes: _Resources) -> None:
        self.listeners = listeners
        self.routes = routes
        self.scopes = scopes  # with routes in them: so it is where listeners share a filter chain
        self._found: dict[tuple[Place, ...], frozenset[Resource]] = {}

    def resources(self, places: tuple[Place, ...]) -> frozenset[Resource]:
        """Return what some ports are to a proxy: where their traffic comes in, and the clusters that it may go to.

        Nothing where the proxy's view leaves the ports out.
        """
        found = self._found.get(places)
        if found is None:
            found = self._found[places] = frozenset(self._resources(places))
        return found

    def named(self) -> set[str]:
        """Return the names of all listeners and routes."""
        return {*self.listeners, *self.routes, *self.scopes}

    def places(self, type_url: TypeUrl, name: str) -> Iterator[Place]:
        """Yield the ports that a resource may belong to."""
        users = self._users.get(name, ()) if type_url in {CLUSTER, ENDPOINTS} else ()
        for one in (name, *users):
            if place := place_of(one):
                yield place

    def _resources(self, places: Iterable[Place]) -> Iterator[Resource]:
        for place in places:
            for type_url, name in self._entrances(place):
                yield type_url, name
                for cluster in self.by_type[type_url][name].needs:
                    yield CLUSTER, cluster
                    yield ENDPOINTS, cluster

    def _entrances(self, place: Place) -> Iterator[Resource]:
        """Yield the routes of a port. A Gateway's listener belongs to its port, a Service's to the Service.

        Connections have no routes, their listeners have all; one for each pod where the Service has no address.
        """
        name = names.place(place)
        if isinstance(place, GatewayRef):
            yield from ((ROUTES, one) for one in ([name] if name in self.routes else self._of_tls.get(place, ())))
            if name in self.listeners:
                yield LISTENER, name
            return
        if name in self.routes:
            yield ROUTES, name
            return
        for one in [name] if name in self.listeners else self._of_pods.get(place, []):
            yield SCOPES if one in self.scopes else LISTENER, one

    @property
    def by_type(self) -> Mapping[TypeUrl, _Resources]:
        """Everything that leads to clusters, by its type."""
        return {ROUTES: self.routes, SCOPES: self.scopes, LISTENER: self.listeners}

    @cached_property
    def _of_pods(self) -> Mapping[Place, list[str]]:
        return _by_place(name for name in self.listeners if name.startswith("pod/"))

    @cached_property
    def _of_tls(self) -> Mapping[Place, list[str]]:
        return _by_place(name for name in self.routes if name.startswith("gateway/"))

    @cached_property
    def _users(self) -> Mapping[str, set[str]]:
        """The names of the listeners and routes that lead to a cluster."""
        found: dict[str, set[str]] = defaultdict(set)
        for resources in self.by_type.values():
            for name, encoded in resources.items():
                for cluster in encoded.needs:
                    found[cluster].add(name)
        return found


def _by_place(found: Iterable[str]) -> Mapping[Place, list[str]]:
    places: dict[Place, list[str]] = defaultdict(list)
    for name in found:
        if place := place_of(name):
            places[place].append(name)
    return places


def place_of(name: str) -> Place | None:
    """Return the port of a Service or Gateway that a resource belongs to, if it does."""
    return names.parse_gateway(name) or names.parse(name)


class Groups:
    """The groups of proxies. One stays the same object while it has the same listeners and routes."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[tuple[_Resources, ...], Group]] = {}
        self._alike: WeakValueDictionary[tuple[int, int, int], Group] = WeakValueDictionary()

    def of(self, node_id: str, config: ProxyConfig) -> Group:
        """Return the group of a proxy that is to hold a configuration."""
        parts = config.get(LISTENER, NOTHING), config.get(ROUTES, NOTHING), config.get(SCOPES, NOTHING)
        last = self._of.get(node_id)
        if last and all(one is other for one, other in zip(parts, last[0], strict=True)):
            return last[1]
        listeners, routes = shared(config, LISTENER), shared(config, ROUTES)
        scopes = shared(config, SCOPES) if config.get(CHAIN) else NOTHING.common
        key = id(listeners), id(routes), id(scopes)  # a living group has all three: no other object has their ids
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = Group(listeners, routes, scopes)
        self._of[node_id] = parts, found
        return found

    def keep(self, node_ids: Container[str]) -> None:
        """Forget all other proxies."""
        for gone in [node_id for node_id in self._of if node_id not in node_ids]:
            del self._of[gone]


def shared(config: ProxyConfig, type_url: TypeUrl) -> _Resources:
    """Return the part of a type that a proxy has in common with others."""
    found = config.get(type_url, NOTHING)
    return found.common if isinstance(found, Resources) else found


def own(config: ProxyConfig, type_url: TypeUrl) -> _Resources:
    """Return the part of a type that is a proxy's alone."""
    found = config.get(type_url, NOTHING)
    return found.own if isinstance(found, Resources) else found


class Answer(NamedTuple):
    """What a proxy does with some resources. `words` say why it refuses one of them."""

    holds: bool
    words: str = ""


class Standing(NamedTuple):
    """How far a proxy is; it has no `group` before it has a configuration.

    `lacking` are the resources that it lags with or refuses. None stands for all, or for too many to name.
    """

    proxy: Proxy
    group: Group | None
    lacking: frozenset[Resource] | None
    refused: Sequence[Rejected] = ()

    def lags(self, resource: Resource) -> bool:
        """Say whether the proxy does not hold a resource as it is wanted."""
        return resource in self.lacking if self.lacking is not None else self.proxy.lags(*resource)

    def answer(self, resources: frozenset[Resource]) -> Answer:
        """Say what the proxy does with some resources."""
        if self.group is None:
            return Answer(holds=False)
        words = next((item.message for item in self.refused if (item.type_url, item.name) in resources), "")
        return Answer(holds=not any(map(self.lags, resources)), words=words)

    def resources(self, places: tuple[Place, ...]) -> frozenset[Resource]:
        """Return what some ports are to the proxy, with listeners and routes that are to go and that it still holds."""
        if self.group is None:
            return frozenset()
        return self.group.resources(places).union(*(self._leaving(self.group, place) for place in places))

    def _leaving(self, group: Group, place: Place) -> Iterator[Resource]:
        name = names.place(place)
        for type_url, wanted in group.by_type.items():
            if self.proxy.session and name not in wanted and self.lags((type_url, name)):
                yield type_url, name
        for type_url, one in self.lacking or ():
            if names.is_listener_of(name, one) and one not in group.routes:
                yield type_url, one


class Receipts:
    """What some proxies hold, each at the moment when it was added.

    Proxies that lag with a few resources are counted as if they held everything, and found by these resources.
    """

    def __init__(self, proxies: Iterable[Proxy] = (), groups: Groups | None = None) -> None:
        """`proxies` are those that serve; `groups` remembers what groups find, from one look to the next."""
        self._known = groups or Groups()
        self.groups: dict[str, Group] = {}
        self.unsynced: dict[str, Standing] = {}
        self._order: dict[str, int] = {}
        self._sidecars: Counter[Group] = Counter()
        self._others: Counter[Group] = Counter()
        self._alike: dict[tuple[Group, frozenset[Resource]], list[str]] = {}  # proxies that lag with the same
        self._lagging: dict[Resource, list[list[str]]] = defaultdict(list)
        self._wide: list[str] = []
        for proxy in proxies:
            self.add(proxy)

    def add(self, proxy: Proxy) -> None:
        """Add a proxy that serves."""
        self._order[proxy.id] = len(self._order)
        config = proxy.config.get()
        if config is None:
            self._wide.append(proxy.id)
            self.unsynced[proxy.id] = Standing(proxy, None, None)
            return
        group = self.groups[proxy.id] = self._known.of(proxy.id, config)
        lacking = proxy.lacking(MOST)
        if lacking is None:
            self._wide.append(proxy.id)
        else:
            counts = self._sidecars if is_sidecar(proxy.id) else self._others
            counts[group] += 1
        if lacking is None or lacking:
            self.unsynced[proxy.id] = Standing(proxy, group, lacking, tuple(proxy.refusals()))
        if lacking:
            alike = self._alike.get((group, lacking)) or self._begin_alike(group, lacking)
            alike.append(proxy.id)

    def _begin_alike(self, group: Group, lacking: frozenset[Resource]) -> list[str]:
        alike = self._alike[group, lacking] = []
        for type_url, name in lacking:
            self._lagging[type_url, name].append(alike)
            port, is_of_tls, _ = name.partition("/tls/")
            if is_of_tls and name not in group.routes:  # it is to go, and the port's group does not name it
                self._lagging[type_url, port].append(alike)
        return alike

    def __contains__(self, node_id: object) -> bool:
        """Say whether a proxy serves."""
        return node_id in self._order

    @cached_property
    def census(self) -> tuple[frozenset[str], frozenset[str]]:
        """Which proxies serve, and which of them lag with more than can be named."""
        return frozenset(self._order), frozenset(self._wide)

    def lagging(self) -> Iterator[tuple[Standing, Resource]]:
        """Yield what proxies lag with, as far as it is known by name; what groups share once for each group."""
        seen: set[tuple[Group, Resource]] = set()
        for (group, lacking), node_ids in self._alike.items():
            for resource in lacking:
                if place_of(resource[1]) is None:
                    yield from ((self.unsynced[node_id], resource) for node_id in node_ids)
                elif (group, resource) not in seen:
                    seen.add((group, resource))
                    yield self.unsynced[node_ids[0]], resource

    def progress(self, places: Sequence[Place]) -> Progress:
        """Say how far the proxies are with everything that serves some ports of Services and Gateways.

        It is about those that are to hold some of it, or hold what is to go; not about those whose view leaves it out.
        """
        wanted = tuple(places)
        with_sidecars = any(not isinstance(place, GatewayRef) for place in wanted)
        holding = sum(count for group, count in self._others.items() if group.resources(wanted))
        if with_sidecars:
            holding += sum(count for group, count in self._sidecars.items() if group.resources(wanted))
        lagging, refused = [], []
        for standing in self._suspects(wanted):
            if is_sidecar(standing.proxy.id) and not with_sidecars:
                continue
            common = standing.group.resources(wanted) if standing.group else NONE
            is_counted = standing.lacking is not None and common
            if is_counted and not standing.refused and not common.isdisjoint(standing.lacking or NONE):
                holding -= 1  # quickly said while answers are due, which is when most proxies are asked
                lagging.append(standing.proxy.id)
                continue
            resources = standing.resources(wanted)
            if standing.group and not resources:
                continue
            answer = standing.answer(resources)
            holding += (answer.holds and not answer.words) - bool(is_counted)
            if answer.words:
                refused.append((standing.proxy.id, answer.words))
            elif not answer.holds:
                lagging.append(standing.proxy.id)
        return Progress(holding=holding, lagging=tuple(lagging), refused=tuple(refused))

    def _suspects(self, places: tuple[Place, ...]) -> Iterator[Standing]:
        """Yield the proxies that may not hold all of some ports, in the order of all."""
        if not self.unsynced:
            return
        resources = {resource for group in {*self._sidecars, *self._others} for resource in group.resources(places)}
        resources.update((type_url, names.place(place)) for place in places for type_url in (ROUTES, SCOPES, LISTENER))
        alike = [node_ids for resource in resources for node_ids in self._lagging.get(resource, ())]
        found = {*self._wide, *chain.from_iterable(alike)}
        for node_id in sorted(found, key=self._order.__getitem__):
            yield self.unsynced[node_id]


def is_sidecar(node_id: str) -> bool:
    """Say whether a node id is a sidecar's."""
    return node_id.startswith(_SIDECARS)
