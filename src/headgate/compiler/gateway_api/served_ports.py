"""The ports of Gateways that accept connections, each with its listeners: the Gateway's own and those of its ListenerSets."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

from headgate.compiler.gateway_api.gateways import ANY_HOST, GatewayState, ListenerPlan
from headgate.compiler.gateway_api.listener_sets import MergedListeners
from headgate.model.edge_tls import ClientCertificates, ListenerCertificate
from headgate.model.host_names import fitting_names
from headgate.model.routing import PortRef
from headgate.resources.meta import Key

ListenerPlace: TypeAlias = tuple[Key, str]
"""A listener, as the key of its Gateway or ListenerSet, and its name."""
OF_CONNECTIONS = frozenset({"TCP", "TLS", "UDP"})
"""The protocols of listeners whose requests proxies do not read."""


class ServedPort:
    """A port of a Gateway on its address, with the listeners that accept connections on it, in order of precedence.

    `exact` has the listeners for one full name each, and `wildcards` those for several names: each with its hostname, and whether
    proxies read its requests.
    """

    def __init__(self, gateway: Key, address: str, plans: Mapping[ListenerPlace, ListenerPlan]) -> None:
        self.gateway = gateway
        self.address = address
        self.plans = plans
        self.port = next(iter(plans.values())).listener.port
        self.protocols = frozenset(plan.listener.protocol for plan in plans.values())
        self.exact: dict[ListenerPlace | PortRef, tuple[str, bool]] = {}
        self.wildcards: dict[ListenerPlace, tuple[str, bool]] = {}
        for place, plan in plans.items():
            is_exact = not plan.host.startswith("*")
            (self.exact if is_exact else self.wildcards)[place] = (
                plan.host,
                plan.listener.protocol not in OF_CONNECTIONS,
            )

    @property
    def has_requests(self) -> bool:
        """Whether proxies read the requests of a listener."""
        return not self.protocols <= OF_CONNECTIONS

    @cached_property
    def hosts_below(self) -> Mapping[str, frozenset[str]]:
        """The hostnames of listeners that fit the hostname of a listener for several names, by that hostname."""
        patterns = {host for host, _ in self.wildcards.values()}
        hosts = [host for host, _ in (*self.exact.values(), *self.wildcards.values())] if patterns else []
        below: dict[str, list[str]] = {host: [] for host in patterns}
        narrow = patterns - {ANY_HOST}
        for host in hosts if narrow else ():
            for pattern in fitting_names(narrow, host):
                below[pattern].append(host)
        if ANY_HOST in below:
            below[ANY_HOST] = hosts
        return {pattern: frozenset(fitting) for pattern, fitting in below.items()}

    @cached_property
    def tls(self) -> tuple[tuple[str, ListenerCertificate], ...]:
        """The certificates with the hostnames of their listeners, sorted by hostname."""
        ended = sorted((plan for plan in self.plans.values() if plan.certificates), key=lambda plan: plan.host)
        return tuple((plan.host, certificate) for plan in ended for certificate in plan.certificates)

    @property
    def client_certificates(self) -> ClientCertificates | None:
        """The certificates that clients of the port need; the same at all listeners that end TLS."""
        return next(filter(None, (plan.client_certificates for plan in self.plans.values())), None)


def served_ports(states: Mapping[Key, GatewayState], listeners: MergedListeners) -> Iterator[ServedPort]:
    """Yield the ports of Gateways with an address, in order."""
    for gateway, state in states.items():
        if not (state.is_served and state.address):
            continue
        by_port: dict[tuple[int, bool], dict[ListenerPlace, ListenerPlan]] = defaultdict(dict)
        for parent in (gateway, *listeners.sets[gateway]):
            for plan in listeners.plans[parent]:
                if plan.served:
                    by_port[plan.listener.socket][parent, plan.listener.name] = plan
        yield from (ServedPort(gateway, state.address, by_port[port]) for port in sorted(by_port))
