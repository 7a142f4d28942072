"""The authorities (host and port spellings) by which clients of the HTTP proxy reach a Service (R2)."""

from collections.abc import Mapping

from headgate.model.routing import Endpoint, Frontend, Mesh, PortRef, Protocol

DEFAULT_PORT = 80
DEFAULT_NAMESPACE = "default"


def authorities(frontend: Frontend, domain: str, home: str = DEFAULT_NAMESPACE) -> list[tuple[str, int]]:
    """Return every authority of a Service with its Service port, such as `("website.default:8080", 8080)` (R2).

    An authority without a port means port 80, or the first port of a Service without port 80. The short name
    belongs to the namespace `home`: the namespace of a sidecar's pod, or `default` for a shared proxy, which does
    not know its clients' namespaces.
    """
    namespace, name = frontend.service.split("/")
    spellings = [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{domain}"]
    if namespace == home:
        spellings.insert(0, name)
    if frontend.address:
        spellings.append(url_host(frontend.address))
    first = DEFAULT_PORT if DEFAULT_PORT in frontend.ports else frontend.ports[0]
    with_port = [(f"{spelling}:{port}", port) for spelling in spellings for port in frontend.ports]
    return [(spelling, first) for spelling in spellings] + with_port


def pods(mesh: Mesh) -> Mapping[PortRef, tuple[Endpoint, ...]]:
    """Return, for each Service port, the pods that clients of the HTTP proxy can call by pod address and port.

    If two Services have the same pod and port, the pod is listed for the first Service only. Addresses that belong to a
    Service are left out.
    """
    used = {(front.address, port) for front in mesh.frontends for port in front.ports}
    by_ref: dict[PortRef, tuple[Endpoint, ...]] = {}
    for entry in mesh.endpoints:
        new = {(pod.address, pod.port): pod for pod in entry.ready if pod.workload and not pod.resolved}
        by_ref[entry.ref] = tuple(pod for key, pod in new.items() if key not in used)
        used |= new.keys()
    return by_ref


def pod_authorities(pod: Endpoint) -> list[str]:
    """Return the authorities of a pod's port; port 80 can be omitted."""
    return [endpoint_authority(pod), *([url_host(pod.address)] if pod.port == DEFAULT_PORT else [])]


def url_host(address: str) -> str:
    """Return an address as the host of a URL or an authority: an IPv6 address in brackets (RFC 3986)."""
    return f"[{address}]" if ":" in address else address


def endpoint_authority(endpoint: Endpoint) -> str:
    """Return the address and the port of an endpoint: `10.0.0.1:8080`, `[fd00::1]:8080`."""
    return f"{url_host(endpoint.address)}:{endpoint.port}"


def canonical(authority: str) -> str:
    """Return an authority without the final dot of an absolute name (`website.default.svc.cluster.local.:8080`)."""
    host, colon, port = authority.rpartition(":")
    return f"{host.removesuffix('.')}:{port}" if colon and port.isdigit() else authority.removesuffix(".")


def resolve(mesh: Mesh, authority: str, home: str = DEFAULT_NAMESPACE) -> PortRef | None:
    """Return the Service port to which the HTTP proxy sends requests for an authority; None if no Service has it."""
    name = canonical(authority).lower()
    for frontend in mesh.frontends:
        if port := dict(authorities(frontend, mesh.domain, home)).get(name):
            return PortRef(frontend.service, port)
    return None


def missing_port(mesh: Mesh, authority: str, home: str = DEFAULT_NAMESPACE) -> str:
    """Return a message if a Service has the host of an authority, but not the port; otherwise an empty text."""
    host, _, port = canonical(authority).lower().rpartition(":")
    offered = ports_of(mesh, host, home) if port.isdigit() else {}
    ref = resolve(mesh, host, home) if offered else None
    return no_such_port(ref.service, int(port), offered) if ref and int(port) not in offered else ""


def ports_of(mesh: Mesh, host: str, home: str = DEFAULT_NAMESPACE) -> Mapping[int, Protocol]:
    """Return the ports of the Service that has a host, with the protocol of each; empty without such a Service."""
    ref = resolve(mesh, host, home)
    return {table.ref.port: table.protocol for table in mesh.tables if ref and table.ref.service == ref.service}


def no_such_port(service: str, port: int, offered: Mapping[int, Protocol]) -> str:
    """Return the message that a Service (`namespace/name`) lacks a port, with the ports that it has."""
    ports = ", ".join(f"{number} ({protocol.value})" for number, protocol in offered.items())
    return f"Service {service} has no port {port}; its {'port is' if len(offered) == 1 else 'ports are'} {ports}"


def suggestion(host: str, scheme: str, offered: Mapping[int, Protocol]) -> str:
    """Return the question whether a client means the first port of a Service that fits a scheme; empty without one."""
    fits = (lambda protocol: protocol is Protocol.TLS) if scheme == "https" else (lambda protocol: protocol.is_http)
    port = next((number for number, protocol in offered.items() if fits(protocol)), 0)
    return f": did you mean {scheme}://{url_host(host)}:{port}/?" if port else ""


def server_name(ref: PortRef, domain: str) -> str:
    """Return the SNI for a Service port: `8080.website.default.svc.cluster.local`."""
    namespace, service = ref.service.split("/")
    return f"{ref.port}.{service}.{namespace}.svc.{domain}"
