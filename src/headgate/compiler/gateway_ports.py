"""Gateways and what is attached to them to the ports of the model."""

from collections.abc import Iterator, Sequence

from headgate.compiler.attachments import Attachment
from headgate.compiler.hostnames import owner, specificity
from headgate.compiler.listeners import ListenerPlan
from headgate.compiler.precedence import order
from headgate.model.routing import Certificate, GatewayPort, HostRoutes, Protocol, Route


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
        connections = _connections(plans[0], attachments)
        return GatewayPort(gateway=name, address=address, port=port, protocol=Protocol.TCP, connections=connections)
    return GatewayPort(
        gateway=name,
        address=address,
        port=port,
        hosts=tuple(sorted(_hosts(plans, attachments), key=lambda item: item.host)),
        tls=tuple(_certificates(plans)),
    )


def _certificates(plans: Sequence[ListenerPlan]) -> Iterator[tuple[str, Certificate]]:
    for plan in sorted(plans, key=lambda plan: plan.host):
        if plan.certificate:
            yield plan.host, plan.certificate


def _connections(plan: ListenerPlan, attachments: Sequence[Attachment]) -> Route | None:
    """Return the route for connections: a TCP listener has one at most."""
    routes = (item.route.connections for item in attachments if item.listener == plan.listener.name)
    return next(routes, None)


def _hosts(plans: Sequence[ListenerPlan], attachments: Sequence[Attachment]) -> Iterator[HostRoutes]:
    """Yield each host of a port with its routes.

    A request belongs to the listener with the most specific hostname, and to no other (listener isolation); there, the
    routes for the most specific hostname come first.
    """
    listeners = {plan.host: plan.listener.name for plan in plans}
    for listener_host, name in listeners.items():
        here = [item for item in attachments if item.listener == name]
        hosts = {host for item in here for host in item.hosts if owner(listeners, host) == listener_host}
        for host in {listener_host, *hosts}:
            yield HostRoutes(host=host, routes=_routes(host, here))


def _routes(host: str, attachments: Sequence[Attachment]) -> tuple[Route, ...]:
    ranked = [
        ((-full, -length), item)
        for attachment in attachments
        if (best := owner(attachment.hosts, host))
        for full, length in [specificity(best)]
        for item in attachment.route.requests
    ]
    ranked.sort(key=lambda pair: (pair[0], order(pair[1])))
    return tuple(dict.fromkeys(item.route for _, item in ranked))
