"""Services whose targetPort no container of their pods declares: callers get 503, unless a process listens there all the same.

A container that declares no port at all says nothing about its ports, so a pod with such a container is never named for a
number. A port that an HTTP probe asks counts as declared. A name can only be that of a declared port.
"""

from collections.abc import Iterator, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.services import routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.unenforced import listed
from headgate.resources.core import Service, ServicePort
from headgate.resources.meta import Key
from headgate.resources.pods import Container, Pod


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield each port of a Service that leads to pods which do not have it, with the pods and the ports that they have."""
    for key, service in snapshot.services.values():
        wanted = service.spec.selected
        names = snapshot.selected(key.namespace, wanted) if wanted else ()
        if names:
            yield from _of_service(snapshot, key, service, names)


def _of_service(snapshot: Snapshot, key: Key, service: Service, names: Sequence[str]) -> Iterator[Finding]:
    known = {id(port) for port in routed_ports(service)}
    for index, port in enumerate(service.spec.ports):
        if id(port) not in known:
            continue
        wanted = port.target_port or port.port
        lacking = [name for name in names if not _may_have(snapshot.pods[name], wanted)]
        if lacking and (isinstance(wanted, int) or len(lacking) == len(names)):
            message = _message(port, wanted, lacking, [snapshot.pods[name] for name in lacking])
            field = f"spec.ports[{index}].targetPort"
            yield Finding(about=key, reason=Reason.TARGET_PORT_NOT_DECLARED, field=field, message=message)


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
            f"port {port.port} leads to the port named {wanted}, and no container of {listed(lacking)} has a port of that "
            f"name (names: {declared}): callers get 503. Set targetPort to one of them or to a number, or name the port"
        )
    declared = ", ".join(map(str, sorted({port.container_port for port in ports}))) or "none"
    return (
        f"port {port.port} leads to port {wanted} of {listed(lacking)}, where no container declares it (declared: "
        f"{declared}): callers get 503 unless a process listens there. Set targetPort to a declared port, or declare "
        f"containerPort {wanted}"
    )
