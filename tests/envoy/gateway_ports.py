"""Ports of the Gateway `default/edge` in meshes of a test, with routes of one HTTPRoute."""

from typing import Any

from tests.envoy.rig import ADDRESS, EnvoyRig
from tests.wire import Address

from headgate.api.certificate import self_signed
from headgate.model.edge_tls import ListenerCertificate
from headgate.model.host_names import by_host
from headgate.model.identities import PrivateText
from headgate.model.routing import GatewayPort, HostRoutes, Route
from headgate.resources.meta import Key

SHOP = Key("gateway.networking.k8s.io", "HTTPRoute", "default", "shop")


def gateway_port(address: Address, *hosts: tuple[str, Route], **more: Any) -> GatewayPort:
    """Return a port with a route for each host."""
    listeners = dict(more.get("tls", ()))
    routes = by_host(
        *(HostRoutes(host=host, routes=(route,), listener=host if host in listeners else "*") for host, route in hosts)
    )
    return GatewayPort(gateway="default/edge", address=ADDRESS, port=address.port, hosts=routes, **more)


def routed(rig: EnvoyRig, *names: str, number: int = 0, **more: Any) -> Route:
    """Return a route of the HTTPRoute `SHOP` to backends of the rig."""
    return rig.route(*names, origin=SHOP, name=str(number), **more)


def certificate(name: str) -> ListenerCertificate:
    """Return a self-signed certificate."""
    chain, key = self_signed()
    return ListenerCertificate(secret=f"default/{name}", chain=chain.decode(), key=PrivateText(key.decode()))
