"""Services to frontends: what clients can connect to, and what of a Service is not routed."""

from collections.abc import Iterator

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.routing import Frontend
from headgate.resources.core import Service, ServicePort
from headgate.resources.meta import Key
from headgate.settings import Settings

EXTERNAL_NAME = "ExternalName"


def routed_ports(service: Service) -> tuple[ServicePort, ...]:
    """Return the ports that headgate routes: the TCP ones of a Service that has endpoints of its own."""
    if service.spec.type == EXTERNAL_NAME:
        return ()
    return tuple(port for port in service.spec.ports if port.protocol == "TCP")


def frontend(name: str, service: Service, settings: Settings) -> Frontend:
    """Describe what clients see of a Service."""
    ports = tuple(sorted(port.port for port in routed_ports(service)))
    address = service.spec.cluster_ip if service.spec.cluster_ip != "None" else ""
    unbindable = tuple(port for port in ports if port < settings.lowest_port) if address else ()
    return Frontend(service=name, address=address, ports=ports, unbindable=unbindable)


def findings(key: Key, service: Service, front: Frontend) -> Iterator[Finding]:
    """Tell what of a Service clients can't reach as they might expect."""
    if service.spec.type == EXTERNAL_NAME:
        message = "an ExternalName Service is a DNS alias outside the mesh; its traffic is not routed"
        yield Finding(about=key, reason=Reason.NOT_ROUTED, field="spec.type", message=message)
    for index, port in enumerate(service.spec.ports):
        field = f"spec.ports[{index}]"
        if port.protocol != "TCP":
            message = f"port {port.port} is {port.protocol}; only TCP ports are routed"
            yield Finding(about=key, reason=Reason.NOT_ROUTED, field=f"{field}.protocol", message=message)
        elif port.port in front.unbindable:
            message = (
                f"this user may not listen on port {port.port}; reach it as http://{key.name}.{key.namespace}:{port.port}"
                " through the HTTP proxy, or give the Service a port from 1024 on, or run headgate as root"
            )
            yield Finding(about=key, reason=Reason.PORT_NOT_BINDABLE, field=f"{field}.port", message=message)
