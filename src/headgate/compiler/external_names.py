"""ExternalName Services: names outside the mesh that proxies resolve (R5), and which names they do not resolve."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.model.requests import Filters, Rewrite
from headgate.model.routing import Endpoint, Endpoints, Mesh, PortRef, Route, Target
from headgate.resources.core import Service, ServicePort
from headgate.resources.meta import Key
from headgate.resources.names import is_dns_subdomain

EXTERNAL_NAME = "ExternalName"
UNLISTED = (ServicePort(name="http", port=80), ServicePort(name="https", port=443))
"""The ports of an ExternalName Service that lists none."""
_DEFAULT_PORT = 80
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
    if _is_address(name):
        return f"{name} is an address; use a Service without selector and an EndpointSlice with the address"
    if not is_dns_subdomain(name):
        return f"{name!r} is no DNS name; write for example api.example.com"
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return f"{name} is this machine itself; use a Service without selector and an EndpointSlice with an address"
    if name.endswith((".svc", f".svc.{domain}")):
        return f"{name} is a name of this mesh; name that Service itself, with a ReferenceGrant in its namespace"
    return ""


def finding(key: Key, service: Service, domain: str) -> Iterator[Finding]:
    """Yield why an ExternalName Service gets no traffic."""
    if is_external(service) and (why := fault(service, domain)):
        message = f"{why}. Requests to the Service get 503 until then"
        yield Finding(about=key, reason=Reason.NAME_NOT_RESOLVED, field="spec.externalName", message=message)


def endpoint(service: Service, port: ServicePort, domain: str) -> tuple[Endpoint, ...]:
    """Return the one endpoint of a port (R35: the same number there); none for a name that is not resolved."""
    if fault(service, domain):
        return ()
    return (Endpoint(address=external_name(service), port=port.port, resolved=True),)


def hosts(endpoints: Iterable[Endpoints]) -> Mapping[PortRef, str]:
    """Return the Host of requests to each Service port that stands for a name outside the mesh."""
    return {entry.ref: _host(item) for entry in endpoints for item in entry.ready if item.resolved}


def with_hosts(mesh: Mesh, hosts: Mapping[PortRef, str]) -> Mesh:
    """Return a mesh whose requests to names outside it carry that name as Host, unless a filter sets another one."""
    if not hosts:
        return mesh
    return structs.replace(
        mesh,
        tables=tuple(
            structs.replace(table, routes=_routes(table.routes, hosts)) if table.protocol.is_http else table
            for table in mesh.tables
        ),
        gateways=tuple(
            structs.replace(
                port, hosts=tuple(structs.replace(item, routes=_routes(item.routes, hosts)) for item in port.hosts)
            )
            for port in mesh.gateways
        ),
    )


def _routes(routes: Iterable[Route], hosts: Mapping[PortRef, str]) -> tuple[Route, ...]:
    return tuple(_route(route, hosts) for route in routes)


def _route(route: Route, hosts: Mapping[PortRef, str]) -> Route:
    mirrors = tuple(structs.replace(item, targets=_targets(item.targets, hosts)) for item in route.mirrors)
    own = route.filters.rewrite
    targets = route.split.targets if own and own.hostname else _targets(route.split.targets, hosts)
    if (targets, mirrors) == (route.split.targets, route.mirrors):
        return route
    return structs.replace(route, split=structs.replace(route.split, targets=targets), mirrors=mirrors)


def _targets(targets: Iterable[Target], hosts: Mapping[PortRef, str]) -> tuple[Target, ...]:
    return tuple(_target(target, hosts.get(target.ref, "")) for target in targets)


def _target(target: Target, host: str) -> Target:
    rewrite = target.filters.rewrite or Rewrite()
    if not host or rewrite.hostname:
        return target
    filters: Filters = structs.replace(target.filters, rewrite=structs.replace(rewrite, hostname=host))
    return structs.replace(target, filters=filters)


def _host(place: Endpoint) -> str:
    return place.address if place.port == _DEFAULT_PORT else f"{place.address}:{place.port}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
