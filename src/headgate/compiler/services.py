"""Services to frontends: what clients can connect to, what of a Service is not routed, and what leads nowhere.

An ExternalName Service stands for a name outside the mesh that proxies resolve (R5).
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, pod_list
from headgate.compiler.snapshot import Snapshot
from headgate.model.routing import Frontend
from headgate.resources.core import Service, ServicePort
from headgate.resources.meta import Key, is_dns_subdomain
from headgate.resources.pods import Container, Pod
from headgate.settings import Settings

HEADLESS, EXTERNAL_NAME = "None", "ExternalName"
UNLISTED = (ServicePort(name="http", port=80), ServicePort(name="https", port=443))
"""The ports of an ExternalName Service that lists none."""
_LOCALHOST = "localhost"


def is_external(service: Service) -> bool:
    """Say whether a Service stands for a name outside the mesh."""
    return service.spec.type == EXTERNAL_NAME


def external_name(service: Service) -> str:
    """Return the name that a Service stands for, in lower case and without the dot that ends an absolute name."""
    return service.spec.external_name.lower().removesuffix(".")


def fault(service: Service, domain: str) -> str:
    """Say why proxies do not resolve the name of a Service; empty when they do.

    The name would lead past what protects its target: this machine's own ports, or Services that need a ReferenceGrant.
    """
    name = external_name(service)
    if not name:
        return "externalName is missing; write the DNS name of a server outside the mesh"
    with contextlib.suppress(ValueError):
        ip_address(name)
        return f"{name} is an address; use a Service without selector and an EndpointSlice with the address"
    if not is_dns_subdomain(name):
        return f"{name!r} is no DNS name; write for example api.example.com"
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return f"{name} is this machine itself; use a Service without selector and an EndpointSlice with an address"
    if name.endswith((".svc", f".svc.{domain}")):
        return f"{name} is a name of this mesh; name that Service itself, with a ReferenceGrant in its namespace"
    return ""


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


def findings(
    key: Key, service: Service, front: Frontend, owners: Mapping[str, str], settings: Settings
) -> Iterator[Finding]:
    """Tell what of a Service clients can't reach as they might expect."""
    if is_external(service) and (why := fault(service, settings.domain)):
        message = f"{why}. Requests to the Service get 503 until then"
        yield Finding(key, Reason.NAME_NOT_RESOLVED, "spec.externalName", message)
    address = address_of(service)
    if front.ports and address and not front.address:
        winner = Key(key.group, key.kind, *owners[address].split("/"))
        message = (
            f"{winner} has the address {address} already, which is older; give one of the two another clusterIP. Until "
            "then this one is reachable by its name through the HTTP proxy only"
        )
        yield Finding(key, Reason.CONFLICTED, "spec.clusterIP", message, related=(winner,))
    for index, port in enumerate(service.spec.ports):
        field = f"spec.ports[{index}]"
        if port.protocol != "TCP":
            message = f"port {port.port} is {port.protocol}; only TCP ports are routed"
            yield Finding(key, Reason.NOT_ROUTED, f"{field}.protocol", message)
        elif port.port in front.unbindable:
            message = (
                f"this user may not listen on port {port.port}; reach it as http://{key.name}.{key.namespace}:{port.port}"
                " through the HTTP proxy (by CONNECT if it is not HTTP), or give the Service a port from 1024 on, or run "
                "headgate as root"
            )
            yield Finding(key, Reason.PORT_NOT_BINDABLE, f"{field}.port", message)


def target_ports(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Return each port of a Service that leads to pods which do not declare it, with the pods and the ports that they have.

    Callers get 503 there, unless a process listens all the same. A container that declares no port at all says nothing about
    its ports, so a pod with such a container is never named for a number. A port that an HTTP probe asks counts as
    declared. A name can only be that of a declared port.
    """
    selecting = [(key, item) for key, item in snapshot.services.values() if item.spec.selected]
    led = ((key, item, snapshot.selected(key.namespace, item.spec.selected)) for key, item in selecting)
    return tuple(found for key, item, names in led if names for found in _undeclared(snapshot, key, item, names))


def _undeclared(snapshot: Snapshot, key: Key, service: Service, names: Sequence[str]) -> Iterator[Finding]:
    known = {id(port) for port in routed_ports(service)}
    for index, port in enumerate(service.spec.ports):
        if id(port) not in known:
            continue
        wanted = port.target_port or port.port
        lacking = [name for name in names if not _may_have(snapshot.pods[name], wanted)]
        if lacking and (isinstance(wanted, int) or len(lacking) == len(names)):
            message = _message(port, wanted, lacking, [snapshot.pods[name] for name in lacking])
            field = f"spec.ports[{index}].targetPort"
            yield Finding(key, Reason.TARGET_PORT_NOT_DECLARED, field, message)


def _may_have(pod: Pod, wanted: int | str) -> bool:
    containers = pod.spec.containers
    if isinstance(wanted, str):
        return any(wanted == port.name for one in containers for port in one.ports or ())
    return not containers or any(not one.ports or wanted in _numbers(one) for one in containers)


def _numbers(container: Container) -> Iterator[int]:
    """Yield the TCP ports that a container declares, and those that its HTTP probes ask."""
    for port in container.ports or ():
        if port.protocol == "TCP":
            yield port.container_port
    for probe in (container.readiness_probe, container.liveness_probe, container.startup_probe):
        if probe and probe.http_get and isinstance(probe.http_get.port, int):
            yield probe.http_get.port


def _message(port: ServicePort, wanted: int | str, lacking: Sequence[str], pods: Sequence[Pod]) -> str:
    ports = {port for pod in pods for one in pod.spec.containers for port in one.ports or () if port.protocol == "TCP"}
    if isinstance(wanted, str):
        declared = ", ".join(sorted({port.name for port in ports if port.name})) or "none"
        return (
            f"port {port.port} leads to the port named {wanted}, and no container of {pod_list(lacking)} has a port of that "
            f"name (names: {declared}): callers get 503. Set targetPort to one of them or to a number, or name the port"
        )
    declared = ", ".join(map(str, sorted({port.container_port for port in ports}))) or "none"
    return (
        f"port {port.port} leads to port {wanted} of {pod_list(lacking)}, where no container declares it (declared: "
        f"{declared}): callers get 503 unless a process listens there. Set targetPort to a declared port, or declare "
        f"containerPort {wanted}"
    )
