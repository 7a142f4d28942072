"""How a request of a client without a sidecar reaches a Service on a cluster: through the Service's gateway, or without a proxy."""

from msgspec import structs

from headgate.compiler.arrivals import Caller
from headgate.compiler.report import Compiled
from headgate.model.authorities import resolve
from headgate.model.identities import gateway_id
from headgate.model.routing import Mesh, PortRef, Route, Split, Target
from headgate.resources.gateway_api.proxies import ENVOY, SERVICE_GATEWAY


def as_reached(compiled: Compiled, authority: str, caller: Caller) -> tuple[Compiled, Caller]:
    """Return the mesh as the requests of a caller without a sidecar meet it, and the caller as the called pods see it.

    No proxy applies a route to its requests, unless the called Service has a gateway, which applies all of them.
    """
    mesh = compiled.mesh
    ref = resolve(mesh, authority, caller.home)
    if ref is None or not _has_routes(mesh, ref):
        return compiled, caller
    gateway = next((gateway for gateway in compiled.report.service_gateways if gateway.name == ref.service), None)
    if gateway and not gateway.fault and not gateway.service.spec.selected:
        note = f"{caller.note}; the {gateway.proxy} gateway of the Service {ref.service} forwards its requests"
        identity = gateway_id(mesh.trust_domain) if gateway.proxy == ENVOY else ""
        return compiled, structs.replace(caller, note=note, identity=identity)
    note = (
        f"{caller.note}; no route applies to its requests, which Kubernetes sends to the endpoints of the Service"
        f" {ref.service}; add a sidecar to the pod, or a gateway to the Service ({SERVICE_GATEWAY})"
    )
    return structs.replace(compiled, mesh=_without_routes(mesh, ref)), structs.replace(caller, note=note)


def _has_routes(mesh: Mesh, ref: PortRef) -> bool:
    return any(route.origin for table in mesh.tables if table.ref == ref for route in table.all_routes)


def _without_routes(mesh: Mesh, ref: PortRef) -> Mesh:
    plain = (Route(split=Split(targets=(Target(ref=ref, weight=1),))),)
    tables = (
        structs.replace(table, routes=plain, server_names=()) if table.ref == ref else table for table in mesh.tables
    )
    return structs.replace(mesh, tables=tuple(tables))
