"""What the proxies hold, by resource: how far they are with the ports that an object decides for.

Most proxies hold all that they are to hold, and those of one kind have the same listeners and routes. So which resources a
port is to them is found once for all of them (`Group`), and what they do with it once for all that lack the same (`AckState`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    NO_RESOURCES,
    ROUTES,
    SCOPES,
    Encoded,
    ProxyConfig,
    Resources,
    TypeUrl,
)
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.envoy.view import SIDECAR
from headgate.resources.meta import Value
from headgate.xds.fleet import Proxy
from headgate.xds.session import Session
from headgate.xds.subscription import Rejection

MOST = 100  # resources that a proxy lags with by name; one that lags with more lags with all
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
        self.by_type = {ROUTES: routes, SCOPES: scopes, LISTENER: listeners}
        self._found: dict[tuple[RouteParent, ...], frozenset[Resource]] = {}

    def resources(self, places: tuple[RouteParent, ...]) -> frozenset[Resource]:
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

    def places(self, type_url: TypeUrl, name: str) -> Iterator[RouteParent]:
        """Yield the ports that a resource may belong to."""
        users = self._users.get(name, ()) if type_url in {CLUSTER, ENDPOINTS} else ()
        for one in (name, *users):
            if place := place_of(one):
                yield place

    def _resources(self, places: Iterable[RouteParent]) -> Iterator[Resource]:
        for place in places:
            for type_url, name in self._entrances(place):
                yield type_url, name
                for cluster in self.by_type[type_url][name].needs:
                    yield CLUSTER, cluster
                    yield ENDPOINTS, cluster

    def _entrances(self, place: RouteParent) -> Iterator[Resource]:
        """Yield the routes of a port. A Gateway's listener belongs to its port, a Service's to the Service.

        Connections have no routes, their listeners have all; one for each pod where the Service has no address.
        """
        name = names.parent(place)
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

    @cached_property
    def _of_pods(self) -> Mapping[RouteParent, list[str]]:
        return _by_place(name for name in self.listeners if name.startswith("pod/"))

    @cached_property
    def _of_tls(self) -> Mapping[RouteParent, list[str]]:
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


def _by_place(found: Iterable[str]) -> Mapping[RouteParent, list[str]]:
    places: dict[RouteParent, list[str]] = defaultdict(list)
    for name in found:
        if place := place_of(name):
            places[place].append(name)
    return places


def place_of(name: str) -> RouteParent | None:
    """Return the port of a Service or Gateway that a resource belongs to, if it does."""
    return names.parse_gateway(name) or names.parse(name)


def shared(config: ProxyConfig, type_url: TypeUrl) -> _Resources:
    """Return the part of a type that a proxy has in common with others."""
    found = config.get(type_url, NO_RESOURCES)
    return found.common if isinstance(found, Resources) else found


class Answer(NamedTuple):
    """What a proxy does with some resources. `words` say why it refuses one of them."""

    holds: bool
    words: str = ""


class AckState:
    """How far some proxies are. They have no `group` before they have a configuration.

    `lacking` are the resources that they lag with or refuse. None stands for all, or for too many to name.
    """

    def __init__(
        self,
        group: Group | None,
        lacking: frozenset[Resource] | None,
        refused: tuple[Rejection, ...],
        *,
        is_sidecar: bool,
    ) -> None:
        self.group = group
        self.lacking = lacking
        self.refused = refused
        self.is_sidecar = is_sidecar

    def answer(self, resources: frozenset[Resource]) -> Answer:
        """Say what the proxies do with some resources."""
        words = next((item.message for item in self.refused if (item.type_url, item.name) in resources), "")
        return Answer(holds=self.lacking is not None and self.lacking.isdisjoint(resources), words=words)

    def resources(self, places: tuple[RouteParent, ...]) -> frozenset[Resource]:
        """Return what some ports are to the proxies, with listeners and routes that are to go and that they still hold."""
        if self.group is None:
            return frozenset()
        return self.group.resources(places).union(*(self._leaving(names.parent(place)) for place in places))

    def _leaving(self, name: str) -> Iterator[Resource]:
        for resource in self._to_go:
            if resource[1] == name or names.is_listener_routes(name, resource[1]):
                yield resource

    @cached_property
    def _to_go(self) -> Sequence[Resource]:
        wanted = self.group.by_type if self.group else {}
        return [(kind, name) for kind, name in self.lacking or () if kind in wanted and name not in wanted[kind]]


class AckStates:
    """How far each proxy is: one object for all that are equally far, and the same one until that changes."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[ProxyConfig | None, Session | None, int, AckState]] = {}
        self._alike: WeakValueDictionary[tuple[object, ...], AckState] = WeakValueDictionary()
        self._groups: WeakValueDictionary[tuple[int, int, int], Group] = WeakValueDictionary()

    def of(self, proxy: Proxy) -> AckState:
        """Return how far a proxy is now."""
        config, session = proxy.config.get(), proxy.session
        last = self._of.get(proxy.id)
        if last and last[0] is config and last[1] is session and (session is None or last[2] == session.change_count):
            return last[3]
        lacking = proxy.out_of_sync(MOST)
        refused = () if lacking is not None and not lacking else tuple(proxy.rejections())
        key = self._group(config) if config is not None else None, lacking, refused, is_sidecar(proxy.id)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = AckState(*key[:3], is_sidecar=key[3])
        self._of[proxy.id] = config, session, session.change_count if session else 0, found
        return found

    def keep(self, node_ids: Collection[str]) -> None:
        """Forget all other proxies."""
        if len(node_ids) < len(self._of):
            self._of = {node_id: known for node_id, known in self._of.items() if node_id in node_ids}

    def _group(self, config: ProxyConfig) -> Group:
        """Return the group of the proxies that are to hold a configuration."""
        listeners, routes = shared(config, LISTENER), shared(config, ROUTES)
        scopes = shared(config, SCOPES) if config.get(CHAIN) else NO_RESOURCES.common
        key = id(listeners), id(routes), id(scopes)  # a living group has all three: no other object has their ids
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = Group(listeners, routes, scopes)
        return found


class Receipts:
    """What some proxies hold, each at the moment when it was added. `of` is how far each is, by node id, in their order."""

    def __init__(self, proxies: Iterable[Proxy] = (), standings: AckStates | None = None) -> None:
        """`proxies` are those that serve; `standings` remembers what it finds, from one look to the next."""
        self._standings = standings or AckStates()
        self.of: dict[str, AckState] = {}
        for proxy in proxies:
            self.add(proxy)

    def add(self, proxy: Proxy) -> None:
        """Add a proxy that serves."""
        self.of[proxy.id] = self._standings.of(proxy)

    @cached_property
    def alike(self) -> Mapping[AckState, tuple[str, ...]]:
        """The proxies that are equally far."""
        found: dict[AckState, list[str]] = defaultdict(list)
        for node_id, standing in self.of.items():
            found[standing].append(node_id)
        return {standing: tuple(node_ids) for standing, node_ids in found.items()}

    @cached_property
    def census(self) -> tuple[frozenset[str], frozenset[str]]:
        """Which proxies serve, and which of them lag with more than can be named."""
        wide = (node_ids for standing, node_ids in self.alike.items() if standing.lacking is None)
        return frozenset(self.of), frozenset(chain.from_iterable(wide))

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {node_id: number for number, node_id in enumerate(self.of)}

    def progress(self, places: Sequence[RouteParent]) -> Progress:
        """Say how far the proxies are with everything that serves some ports of Services and Gateways.

        It is about those that are to hold some of it, or hold what is to go; not about those whose view leaves it out.
        """
        wanted = tuple(places)
        with_sidecars = any(not isinstance(place, GatewayRef) for place in wanted)
        holding = 0
        lagging: list[str] = []
        refused: list[tuple[str, str]] = []
        for standing, node_ids in self.alike.items():
            resources = standing.resources(wanted)
            if (standing.is_sidecar and not with_sidecars) or (standing.group and not resources):
                continue
            answer = standing.answer(resources)
            if answer.words:
                refused += [(node_id, answer.words) for node_id in node_ids]
            elif answer.holds:
                holding += len(node_ids)
            else:
                lagging += node_ids
        return Progress(
            holding=holding,
            lagging=tuple(sorted(lagging, key=self._order.__getitem__)),
            refused=tuple(sorted(refused, key=lambda one: self._order[one[0]])),
        )


def is_sidecar(node_id: str) -> bool:
    """Say whether a node id is a sidecar's."""
    return node_id.startswith(_SIDECARS)
