"""Gateways and what is attached to them to the ports of the model."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from headgate.compiler.gateway_api.listeners import ListenerPlan
from headgate.compiler.gateway_api.parents import Attachment
from headgate.compiler.gateway_api.rules import CompiledRoute, in_order
from headgate.model.evaluate import best_name, fitting_names
from headgate.model.routing import GatewayPort, HostRoutes, Protocol, Route
from headgate.resources.meta import Key


def gateway_ports(
    name: str, address: str, plans: Sequence[ListenerPlan], attachments: Sequence[Attachment]
) -> tuple[GatewayPort, ...]:
    """Return the ports of a Gateway (`namespace/name`) that clients can connect to."""
    served = [plan for plan in plans if plan.served]
    ports = sorted({plan.listener.port for plan in served})
    if not address:
        return ()
    found = (
        _port(name, address, [plan for plan in served if plan.listener.port == port], attachments) for port in ports
    )
    return tuple(port for port in found if port.hosts or port.connections)


def _port(name: str, address: str, plans: list[ListenerPlan], attachments: Sequence[Attachment]) -> GatewayPort:
    port = plans[0].listener.port
    if plans[0].listener.protocol == "TCP":
        attached = (item.route.connections for item in attachments if item.listener == plans[0].listener.name)
        connections = next(attached, None)  # a TCP listener has one route at most
        return GatewayPort(gateway=name, address=address, port=port, protocol=Protocol.TCP, connections=connections)
    certificates = ((plan.host, plan.certificate) for plan in sorted(plans, key=lambda plan: plan.host))
    return GatewayPort(
        gateway=name,
        address=address,
        port=port,
        hosts=tuple(sorted(_hosts(plans, attachments), key=lambda item: item.host)),
        tls=tuple((host, certificate) for host, certificate in certificates if certificate),
    )


def _hosts(plans: Sequence[ListenerPlan], attachments: Sequence[Attachment]) -> Iterator[HostRoutes]:
    """Yield each host of a port with its routes.

    A request belongs to the listener with the most specific hostname, and to no other (listener isolation); there, the
    routes for the most specific hostname come first.
    """
    listeners = {plan.host: plan.listener.name for plan in plans}
    for listener_host, name in listeners.items():
        here: dict[str, dict[Key, CompiledRoute]] = defaultdict(dict)
        for item in attachments:
            if item.listener == name:
                for host in item.hosts:
                    here[host][item.route.key] = item.route
        hosts = {host for host in here if best_name(listeners, host) == listener_host}
        for host in {listener_host, *hosts}:
            yield HostRoutes(host=host, routes=tuple(_routes(host, here)), listener=listener_host)


def _routes(host: str, attached: Mapping[str, Mapping[Key, CompiledRoute]]) -> Iterator[Route]:
    """Yield the routes of a host in their order; of several hosts of a route that cover it, the most specific counts."""
    seen: set[Key] = set()
    for pattern in fitting_names(attached, host):
        fresh = [route for key, route in attached[pattern].items() if key not in seen]
        seen |= {route.key for route in fresh}
        yield from in_order(item for route in fresh for item in route.requests)
