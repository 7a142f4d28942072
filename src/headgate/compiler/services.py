"""Compile Services to frontends (the addresses and ports that clients connect to), with findings about them.

An ExternalName Service is an alias of a DNS name outside the mesh, which proxies resolve (R5).
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from operator import attrgetter
from typing import Literal

from headgate.compiler import service_fields
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.model.routing import Frontend
from headgate.resources.core.pod import MeshContainer, MeshPod
from headgate.resources.core.service import Service, ServicePort
from headgate.resources.meta import Key, is_dns_subdomain
from headgate.settings import Settings

HEADLESS, EXTERNAL_NAME = "None", "ExternalName"
UNLISTED = (ServicePort(name="http", port=80), ServicePort(name="https", port=443))
"""The ports of an ExternalName Service whose spec has none."""
_LOCALHOST = "localhost"


def is_external(service: Service) -> bool:
    """Return whether a Service stands for a DNS name outside the mesh."""
    return service.spec.type == EXTERNAL_NAME


def external_name(service: Service) -> str:
    """Return the DNS name of an ExternalName Service, in lower case and without the final dot."""
    return service.spec.external_name.lower().removesuffix(".")


def fault(service: Service, domain: str) -> str:
    """Return why headgate does not resolve the external name of a Service; empty when it does."""
    if not external_name(service):
        return "externalName is missing; write the DNS name of a server outside the mesh"
    return name_fault("externalName", external_name(service), domain)


def name_fault(field: str, name: str, domain: str) -> str:
    """Return why headgate does not resolve the DNS name in a field; empty when it does.

    Some names are refused because they would bypass a protection: they lead to this machine's own ports, or to
    Services that need a ReferenceGrant.
    """
    with contextlib.suppress(ValueError):
        ip_address(name)
        return f"{field} {name} is an IP address; use a Service without selector and an EndpointSlice with the address"
    if not is_dns_subdomain(name):
        return f"{field} {name!r} is not a DNS name; write a name like api.example.com"
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return f"{field} {name} is this machine; use a Service without selector and an EndpointSlice with an address"
    if name.endswith((".svc", f".svc.{domain}")):
        return (
            f"{field} {name} is a Service of this mesh; refer to that Service, with a ReferenceGrant in its namespace"
        )
    return ""


def routed_ports(service: Service, protocol: Literal["TCP", "UDP"] = "TCP") -> tuple[ServicePort, ...]:
    """Return the ports of a Service that headgate routes: those for TCP, or those for UDP, which only UDPRoutes lead to.

    Of two ports with the same number, the first one is used.
    """
    written = service.spec.ports or (UNLISTED if is_external(service) else ())
    by_number: dict[int, ServicePort] = {}
    for port in written:
        if port.protocol == protocol:
            by_number.setdefault(port.port, port)
    return tuple(by_number.values())


def address_owners(services: Mapping[str, tuple[Key, Service]]) -> Mapping[str, str]:
    """Return the Service that owns each clusterIP: the oldest Service that claims it."""
    by_age = sorted(services.items(), key=lambda entry: (entry[1][1].metadata.creation_timestamp, entry[0]))
    owners: dict[str, str] = {}
    for name, (_, service) in by_age:
        if (address := address_of(service)) and routed_ports(service):
            owners.setdefault(address, name)
    return owners


def address_of(service: Service) -> str:
    """Return the clusterIP that a Service claims; empty for headless and ExternalName Services."""
    return "" if is_external(service) or service.spec.cluster_ip == HEADLESS else service.spec.cluster_ip


def frontend(name: str, service: Service, owners: Mapping[str, str], settings: Settings) -> Frontend:
    """Return the frontend of a Service; it has no address if an older Service owns the clusterIP."""
    routed = sorted(routed_ports(service), key=attrgetter("port"))
    ports, names = tuple(port.port for port in routed), tuple(port.name for port in routed)
    address = address_of(service) if owners.get(address_of(service)) == name else ""
    unbindable = tuple(port for port in ports if port < settings.lowest_port) if address else ()
    return Frontend(
        service=name, address=address, ports=ports, port_names=names if any(names) else (), unbindable=unbindable
    )


def findings(
    key: Key, service: Service, front: Frontend, owners: Mapping[str, str], settings: Settings
) -> Iterator[Finding]:
    """Yield a finding for each part of a Service that clients can't use, such as an address of another one."""
    yield from service_fields.findings(key, service, settings)
    why = fault(service, settings.domain) if is_external(service) else ""
    if why:
        message = f"{why}. Until then, requests to the Service get 503"
        yield Finding(key, Reason.NAME_NOT_RESOLVED, "spec.externalName", message)
    address = address_of(service)
    if front.ports and address and not front.address:
        winner = Key(key.group, key.kind, *owners[address].split("/"))
        message = (
            f"the older {winner} already has the address {address}; give one of the two another clusterIP. Until then, "
            "clients reach this Service only by its name through the HTTP proxy"
        )
        yield Finding(key, Reason.CONFLICTED, "spec.clusterIP", message, related=(winner,))
    for index, port in enumerate(service.spec.ports):
        if port.protocol == "TCP" and port.port in front.unbindable:
            message = (
                f"headgate has no permission to listen on port {port.port}; call http://{key.name}.{key.namespace}:{port.port} "
                "through the HTTP proxy (with CONNECT if it is not HTTP), use a port of 1024 or above, or run headgate "
                "as root"
            )
            yield Finding(key, Reason.PORT_NOT_BINDABLE, f"spec.ports[{index}].port", message)


def target_ports(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return a finding for each Service port whose targetPort is not declared by its pods.

    Callers get 503 there, unless a process listens on the port without a declaration. A container without any
    declared port may listen on any port, so pods with such a container are skipped for numeric ports. The port of
    an HTTP probe counts as declared. A named targetPort must be a declared name.
    """
    selecting = [(key, service) for key, service in snapshot.services.values() if service.spec.selected]
    targets = ((key, service, snapshot.selected(key.namespace, service.spec.selected)) for key, service in selecting)
    return tuple(
        finding for key, service, names in targets if names for finding in _undeclared(snapshot, key, service, names)
    )


def _undeclared(snapshot: Snapshot, key: Key, service: Service, names: Sequence[str]) -> Iterator[Finding]:
    routed = {id(port) for port in routed_ports(service)}
    for index, port in enumerate(service.spec.ports):
        if id(port) not in routed:
            continue
        target = port.target_port or port.port
        missing = [name for name in names if not _may_have(snapshot.pods[name], target)]
        if missing and (isinstance(target, int) or len(missing) == len(names)):
            message = _undeclared_message(port, target, missing, [snapshot.pods[name] for name in missing])
            field = f"spec.ports[{index}].targetPort"
            yield Finding(key, Reason.TARGET_PORT_NOT_DECLARED, field, message)


def _may_have(pod: MeshPod, target: int | str) -> bool:
    containers = pod.spec.containers
    if isinstance(target, str):
        return any(target == port.name for container in containers for port in container.ports or ())
    return not containers or any(not container.ports or target in _numbers(container) for container in containers)


def _numbers(container: MeshContainer) -> Iterator[int]:
    """Yield the TCP ports that a container declares, and the ports of its HTTP probes."""
    for port in container.ports or ():
        if port.protocol == "TCP":
            yield port.container_port
    for probe in (container.readiness_probe, container.liveness_probe, container.startup_probe):
        if probe and probe.http_get and isinstance(probe.http_get.port, int):
            yield probe.http_get.port


def _undeclared_message(port: ServicePort, target: int | str, missing: Sequence[str], pods: Sequence[MeshPod]) -> str:
    ports = {
        port
        for pod in pods
        for container in pod.spec.containers
        for port in container.ports or ()
        if port.protocol == "TCP"
    }
    if isinstance(target, str):
        declared = ", ".join(sorted({port.name for port in ports if port.name})) or "none"
        return (
            f"port {port.port} has the targetPort {target}, but no container of {pod_list(missing)} has a port of that name "
            f"(names: {declared}), so callers get 503. Set targetPort to one of these names or a number, or name the port"
        )
    declared = ", ".join(map(str, sorted({port.container_port for port in ports}))) or "none"
    return (
        f"port {port.port} has the targetPort {target}, which no container of {pod_list(missing)} declares (declared: "
        f"{declared}); callers get 503 if no process listens there. Set targetPort to a declared port, or declare "
        f"containerPort {target}"
    )
