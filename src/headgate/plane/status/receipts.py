"""Receipts: which proxies have acknowledged the resources of a Service port or Gateway port.

Most proxies have acknowledged everything, and all sidecars share most listeners and routes. So the resources of a port
are computed once for the proxies of a `ProxyGroup`, which share these resources. Acknowledgments are evaluated once for all
proxies in the same `AckState`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from headgate.envoy import names
from headgate.envoy.config import (
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
from headgate.envoy.gateway_hosts import WILDCARDS
from headgate.envoy.names import GatewayRef, RouteParent
from headgate.envoy.node_ids import SIDECAR
from headgate.resources.meta import Value
from headgate.xds.fleet import FleetProxy
from headgate.xds.session import Session
from headgate.xds.subscription import Rejection

MAX_NAMED = 100  # if more resources than this are out of sync, all resources of the proxy count as out of sync
Resource: TypeAlias = tuple[TypeUrl, str]
NONE: frozenset[Resource] = frozenset()
_SIDECARS = f"{SIDECAR}/"
_Resources: TypeAlias = Mapping[str, Encoded]


class Progress(Value, frozen=True, kw_only=True):
    """The acknowledgments of one set of resources, for example those of a Service port, by all proxies that need them.

    `holding` is the number of proxies that have acknowledged the whole set. `lagging` has the node IDs of
    proxies that have not answered yet. `refused` has pairs of node ID and Envoy's error message.
    """

    holding: int = 0
    lagging: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """The number of proxies that have acknowledged the set, not answered yet, or rejected a resource of it."""
        return self.holding + len(self.lagging) + len(self.refused)


class ProxyGroup:
    """A group of proxies that share the same listeners, routes and scopes, with the resources of each port."""

    def __init__(self, listeners: _Resources, routes: _Resources, scopes: _Resources) -> None:
        self.listeners = listeners
        self.routes = routes
        self.scopes = scopes
        self.by_type = {ROUTES: routes, SCOPES: scopes, LISTENER: listeners}
        self._found: dict[tuple[RouteParent, ...], frozenset[Resource]] = {}

    def resources(self, ports: tuple[RouteParent, ...]) -> frozenset[Resource]:
        """Return the resources of some ports: the listeners or routes, and the clusters of these listeners or routes.

        Returns an empty set if the proxies' configuration does not contain the ports.
        """
        cached = self._found.get(ports)
        if cached is None:
            cached = self._found[ports] = frozenset(self._resources(ports))
        return cached

    def serves(self, ports: tuple[RouteParent, ...]) -> bool:
        """Return whether the proxies' configuration contains one of the ports."""
        return any(any(self._receivers(port)) for port in ports)

    def named(self) -> set[str]:
        """Return the names of all listeners and routes. A scope belongs to a port that has one of them."""
        return {*self.listeners, *self.routes}

    def ports(self, type_url: TypeUrl, name: str) -> Iterator[RouteParent]:
        """Yield the ports to which a resource may belong; a cluster belongs to the ports of all routes that use it.

        The scope of a Gateway's host belongs to the host, and to `*`, which stands for all hosts of the port.
        """
        users = self._users.get(name, ()) if type_url in {CLUSTER, ENDPOINTS} else ()
        for user in (name, *users):
            port = port_of(user)
            if isinstance(port, GatewayRef) and user in self.scopes:
                yield port._replace(host=user.rpartition("/")[2])
                yield port._replace(host=WILDCARDS)
            elif port:
                yield port

    def _resources(self, ports: Iterable[RouteParent]) -> Iterator[Resource]:
        for port in ports:
            for type_url, name in self._receivers(port):
                yield type_url, name
                for cluster in self.by_type[type_url][name].needs:
                    yield CLUSTER, cluster
                    yield ENDPOINTS, cluster

    def _receivers(self, port: RouteParent) -> Iterator[Resource]:
        """Yield the resources that receive the traffic of a port.

        An HTTP port has routes, and a TCP port has a listener, or one listener per pod if the Service has no address. A
        Gateway port has its listener, and the scopes of its hosts or of one host.
        """
        name = names.parent(port)
        if isinstance(port, GatewayRef):
            listener = names.gateway(port._replace(host=""))
            if listener in self.listeners:
                yield LISTENER, listener
            yield from (
                (SCOPES, receiver)
                for receiver in ((name,) if port.host else self._of_hosts.get(port, ()))
                if receiver in self.scopes
            )
            return
        if name in self.routes:
            yield ROUTES, name
            return
        for receiver in [name] if name in self.listeners else self._of_pods.get(port, []):
            yield SCOPES if receiver in self.scopes else LISTENER, receiver

    @cached_property
    def _of_pods(self) -> Mapping[RouteParent, list[str]]:
        return _by_port(name for name in self.listeners if name.startswith("pod/"))

    @cached_property
    def _of_hosts(self) -> Mapping[RouteParent, list[str]]:
        return _by_port(name for name in self.scopes if name.startswith("gateway/"))

    @cached_property
    def _users(self) -> Mapping[str, set[str]]:
        """The names of the listeners and routes that use a cluster."""
        users: dict[str, set[str]] = defaultdict(set)
        for resources in self.by_type.values():
            for name, encoded in resources.items():
                for cluster in encoded.needs:
                    users[cluster].add(name)
        return users


def _by_port(names: Iterable[str]) -> Mapping[RouteParent, list[str]]:
    ports: dict[RouteParent, list[str]] = defaultdict(list)
    for name in names:
        if port := port_of(name):
            ports[port].append(name)
    return ports


def port_of(name: str) -> RouteParent | None:
    """Return the Service port or Gateway port to which the resource `name` belongs; None if it belongs to no port."""
    return names.parse_gateway(name) or names.parse(name)


def shared(config: ProxyConfig, type_url: TypeUrl) -> _Resources:
    """Return the resources of a type that a proxy shares with other proxies."""
    resources = config.get(type_url, NO_RESOURCES)
    return resources.common if isinstance(resources, Resources) else resources


class Acknowledgment(NamedTuple):
    """A proxy's answer to a set of resources: whether the proxy has acknowledged all of these resources.

    `error` is Envoy's message if the proxy rejected a resource.
    """

    holds: bool
    error: str = ""


class AckState:
    """What one or more proxies have acknowledged. Proxies with equal states share one instance.

    `group` is None before the proxies have a configuration. `out_of_sync` has the resources that the proxies have
    refused, or not acknowledged in the wanted version. `out_of_sync` is None if more than `MAX_NAMED` resources, or all
    resources, are out of sync. `refused` has the current rejections.
    """

    def __init__(
        self,
        group: ProxyGroup | None,
        out_of_sync: frozenset[Resource] | None,
        refused: tuple[Rejection, ...],
        *,
        is_sidecar: bool,
    ) -> None:
        self.group = group
        self.out_of_sync = out_of_sync
        self.refused = refused
        self.is_sidecar = is_sidecar

    def answer(self, resources: frozenset[Resource]) -> Acknowledgment:
        """Return whether the proxies have acknowledged all of `resources`."""
        error = next((refusal.message for refusal in self.refused if (refusal.type_url, refusal.name) in resources), "")
        return Acknowledgment(
            holds=self.out_of_sync is not None and self.out_of_sync.isdisjoint(resources), error=error
        )

    def answer_for(self, ports: tuple[RouteParent, ...]) -> Acknowledgment:
        """Return whether the proxies have acknowledged all resources of some ports."""
        is_in_sync = self.out_of_sync is not None and not self.out_of_sync and not self.refused
        return Acknowledgment(holds=True) if is_in_sync else self.answer(self.resources(ports))

    def needs(self, ports: tuple[RouteParent, ...]) -> bool:
        """Return whether the proxies need or hold a resource of some ports, or have no configuration yet."""
        return self.group is None or self.group.serves(ports) or any(self._removed_resources(ports))

    def resources(self, ports: tuple[RouteParent, ...]) -> frozenset[Resource]:
        """Return the resources of some ports, including removed listeners and routes that the proxies still hold."""
        if self.group is None:
            return frozenset()
        removed = frozenset(self._removed_resources(ports))
        return self.group.resources(ports) | removed if removed else self.group.resources(ports)

    def _removed_resources(self, ports: Iterable[RouteParent]) -> Iterator[Resource]:
        for port in ports if self._removed else ():
            yield from self._removed_of(names.parent(port))

    def _removed_of(self, name: str) -> Iterator[Resource]:
        for resource in self._removed:
            if resource[1] == name or names.is_host_of(name, resource[1]):
                yield resource

    @cached_property
    def _removed(self) -> Sequence[Resource]:
        needed = self.group.by_type if self.group else {}
        return [(kind, name) for kind, name in self.out_of_sync or () if kind in needed and name not in needed[kind]]


class AckStates:
    """Caches the state of each proxy. Proxies with equal states share one instance."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[ProxyConfig | None, bool, Session | None, int, AckState]] = {}
        self._instances: WeakValueDictionary[tuple[object, ...], AckState] = WeakValueDictionary()
        self._groups: WeakValueDictionary[tuple[int, int, int], ProxyGroup] = WeakValueDictionary()

    def of(self, proxy: FleetProxy) -> AckState:
        """Return the current state of a proxy."""
        config, session = proxy.config.get(), proxy.session
        count = session.change_count if session else 0
        last = self._of.get(proxy.id)
        if last and last[0] is config and last[2] is session and (last[1], last[3]) == (proxy.is_behind, count):
            return last[4]
        out_of_sync = proxy.out_of_sync(MAX_NAMED)
        refused = () if out_of_sync is not None and not out_of_sync else tuple(proxy.rejections())
        key = self._group(config) if config is not None else None, out_of_sync, refused, is_sidecar(proxy.id)
        state = self._instances.get(key)
        if state is None:
            state = self._instances[key] = AckState(*key[:3], is_sidecar=key[3])
        self._of[proxy.id] = config, proxy.is_behind, session, session.change_count if session else 0, state
        return state

    def keep(self, node_ids: Collection[str]) -> None:
        """Drop the states of proxies that are not in `node_ids`."""
        if len(node_ids) < len(self._of):
            self._of = {node_id: state for node_id, state in self._of.items() if node_id in node_ids}

    def _group(self, config: ProxyConfig) -> ProxyGroup:
        """Return the group of proxies that share the listeners, routes and scopes of a configuration."""
        listeners, routes = shared(config, LISTENER), shared(config, ROUTES)
        scopes = shared(config, SCOPES)
        key = id(listeners), id(routes), id(scopes)  # unique, because the group references these three objects
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ProxyGroup(listeners, routes, scopes)
        return group


class Receipts:
    """The acknowledgments of proxies. `states` maps each node ID to the state that the proxy had when it was added."""

    def __init__(self, proxies: Iterable[FleetProxy] = (), cache: AckStates | None = None) -> None:
        """Add `proxies`; headgate must already have sent a configuration to each of them.

        With the same `cache`, two observations share the states of proxies without changes.
        """
        self._cache = cache or AckStates()
        self.states: dict[str, AckState] = {}
        for proxy in proxies:
            self.add(proxy)

    def add(self, proxy: FleetProxy) -> None:
        """Add the current state of a proxy; headgate must already have sent a configuration to it."""
        self.states[proxy.id] = self._cache.of(proxy)

    @cached_property
    def by_state(self) -> Mapping[AckState, tuple[str, ...]]:
        """The node IDs of the proxies in each state."""
        proxies: dict[AckState, list[str]] = defaultdict(list)
        for node_id, state in self.states.items():
            proxies[state].append(node_id)
        return {state: tuple(node_ids) for state, node_ids in proxies.items()}

    @cached_property
    def membership(self) -> tuple[frozenset[str], frozenset[str]]:
        """The node IDs of all added proxies, and of those with more than `MAX_NAMED` resources out of sync."""
        wide = (node_ids for state, node_ids in self.by_state.items() if state.out_of_sync is None)
        return frozenset(self.states), frozenset(chain.from_iterable(wide))

    def has_lost(self, before: "Receipts") -> bool:
        """Return whether a proxy of an earlier observation, which had a stream then, may have none now."""
        (known_before, unknown_before), (_, unknown) = before.membership, self.membership
        return not known_before.isdisjoint(unknown - unknown_before)

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {node_id: number for number, node_id in enumerate(self.states)}

    def progress(self, ports: Sequence[RouteParent], consumer: str = "") -> Progress:
        """Return the proxies' acknowledgments of all resources that serve some ports of Services and Gateways.

        The result leaves out proxies that neither need nor hold any of these resources, and with `consumer` all but the sidecars
        of this namespace.
        """
        ports_needed = tuple(ports)
        with_sidecars = any(not isinstance(port, GatewayRef) for port in ports_needed)
        holding = 0
        lagging: list[str] = []
        refused: list[tuple[str, str]] = []
        for state, all_ids in self.by_state.items():
            if (state.is_sidecar and not with_sidecars) or not state.needs(ports_needed):
                continue
            node_ids = [name for name in all_ids if name.startswith(f"{_SIDECARS}{consumer}/")] if consumer else all_ids
            answer = state.answer_for(ports_needed)
            if answer.error:
                refused += [(node_id, answer.error) for node_id in node_ids]
            elif answer.holds:
                holding += len(node_ids)
            else:
                lagging += node_ids
        return Progress(
            holding=holding,
            lagging=tuple(sorted(lagging, key=self._order.__getitem__)),
            refused=tuple(sorted(refused, key=lambda refusal: self._order[refusal[0]])),
        )


def is_sidecar(node_id: str) -> bool:
    """Return whether a node ID belongs to a sidecar."""
    return node_id.startswith(_SIDECARS)
