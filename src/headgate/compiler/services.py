"""Services to frontends: what clients can connect to, and what of a Service is not routed."""

from collections.abc import Iterator, Mapping

from headgate.compiler.external_names import UNLISTED, is_external
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.routing import Frontend
from headgate.resources.core import Service, ServicePort
from headgate.resources.meta import Key
from headgate.settings import Settings

HEADLESS = "None"


def routed_ports(service: Service) -> tuple[ServicePort, ...]:
    """Return the ports that headgate routes: the TCP ones. Of two ports with one number the first counts."""
    written = service.spec.ports or (UNLISTED if is_external(service) else ())
    found: dict[int, ServicePort] = {}
    for port in written:
        if port.protocol == "TCP":
            found.setdefault(port.port, port)
    return tuple(found.values())


def address_owners(services: Mapping[str, tuple[Key, Service]]) -> Mapping[str, str]:
    """Return who has each address (clusterIP): the oldest of the Services that claim it."""
    by_age = sorted(services.items(), key=lambda entry: (entry[1][1].metadata.creation_timestamp, entry[0]))
    owners: dict[str, str] = {}
    for name, (_, service) in by_age:
        if (address := address_of(service)) and routed_ports(service):
            owners.setdefault(address, name)
    return owners


def address_of(service: Service) -> str:
    """Return the address that a Service claims; empty for a headless one and for a name outside the mesh."""
    return "" if is_external(service) or service.spec.cluster_ip == HEADLESS else service.spec.cluster_ip


def frontend(name: str, service: Service, owners: Mapping[str, str], settings: Settings) -> Frontend:
    """Describe what clients see of a Service; without its address when that is another's."""
    ports = tuple(sorted(port.port for port in routed_ports(service)))
    address = address_of(service) if owners.get(address_of(service)) == name else ""
    unbindable = tuple(port for port in ports if port < settings.lowest_port) if address else ()
    return Frontend(service=name, address=address, ports=ports, unbindable=unbindable)


def findings(key: Key, service: Service, front: Frontend, owners: Mapping[str, str]) -> Iterator[Finding]:
    """Tell what of a Service clients can't reach as they might expect."""
    address = address_of(service)
    if front.ports and address and not front.address:
        winner = Key(key.group, key.kind, *owners[address].split("/"))
        message = (
            f"{winner} has the address {address} already, which is older; give one of the two another clusterIP. Until "
            "then this one is reachable by its name through the HTTP proxy only"
        )
        yield Finding(about=key, reason=Reason.CONFLICTED, field="spec.clusterIP", message=message, related=(winner,))
    for index, port in enumerate(service.spec.ports):
        field = f"spec.ports[{index}]"
        if port.protocol != "TCP":
            message = f"port {port.port} is {port.protocol}; only TCP ports are routed"
            yield Finding(about=key, reason=Reason.NOT_ROUTED, field=f"{field}.protocol", message=message)
        elif port.port in front.unbindable:
            message = (
                f"this user may not listen on port {port.port}; reach it as http://{key.name}.{key.namespace}:{port.port}"
                " through the HTTP proxy (by CONNECT if it is not HTTP), or give the Service a port from 1024 on, or run "
                "headgate as root"
            )
            yield Finding(about=key, reason=Reason.PORT_NOT_BINDABLE, field=f"{field}.port", message=message)
