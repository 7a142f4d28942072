"""The environment variables with the addresses and ports of Services, as in Kubernetes: `WEB_SERVICE_HOST`.

https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
"""

from collections.abc import Iterable, Iterator

from headgate.resources.core.service import NO_ADDRESS, Service, ServicePort


def service_variables(services: Iterable[Service]) -> dict[str, str]:
    """Return the variables of Services with an address and TCP ports, the only ones with listeners on this machine."""
    return {
        name: value
        for service in services
        if service.spec.cluster_ip not in NO_ADDRESS and service.spec.type != "ExternalName"
        for name, value in _variables(service)
    }


def _variables(service: Service) -> Iterator[tuple[str, str]]:
    prefix, address = _variable(service.metadata.name), service.spec.cluster_ip
    for index, port in enumerate(port for port in service.spec.ports if port.protocol.upper() == "TCP"):
        if index == 0:
            yield f"{prefix}_SERVICE_HOST", address
            yield f"{prefix}_SERVICE_PORT", str(port.port)
            yield f"{prefix}_PORT", _url(address, port)
        if port.name:
            yield f"{prefix}_SERVICE_PORT_{_variable(port.name)}", str(port.port)
        of_port = f"{prefix}_PORT_{port.port}_TCP"
        yield of_port, _url(address, port)
        yield f"{of_port}_PROTO", "tcp"
        yield f"{of_port}_PORT", str(port.port)
        yield f"{of_port}_ADDR", address


def _url(address: str, port: ServicePort) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"tcp://{host}:{port.port}"


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
