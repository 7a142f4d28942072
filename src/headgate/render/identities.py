"""What depends on the identity of the caller: a rendered proxy has no certificate of the mesh."""

from collections.abc import Iterable, Iterator

from headgate.model.routing import Mesh, Route, Workload
from headgate.render.omissions import Omission, OmissionReason, Place
from headgate.resources.registry import POD

_REFUSED = "it accepts mutual TLS only, and refuses connections of a proxy without an identity"
_CLOSED = "it allows only callers with an identity, and a proxy without one gets 403 or no connection"
PLAINTEXT = ""  # the caller of a connection without an identity
_GRANT = "the proxy has no identity, so this grants its requests nothing"


def identity_omissions(mesh: Mesh, routes: Iterable[Route]) -> Iterator[Omission]:
    """Yield an omission for each pod and access policy behind some routes that checks the identity of callers."""
    refs = {ref for route in routes for ref in route.callees}
    names = {endpoint.workload for entry in mesh.endpoints if entry.ref in refs for endpoint in entry.ready}
    for workload in mesh.workloads:
        if workload.name in names:
            yield from _of_workload(workload)


def _of_workload(workload: Workload) -> Iterator[Omission]:
    pod = Place(POD.key(*workload.name.split("/")), "")
    if not workload.target_tls_mode.accepts_plaintext:
        yield _omission(pod, OmissionReason.MUTUAL_TLS, _REFUSED)
    with_identity = [grant for grant in workload.access.grants if not grant.includes(PLAINTEXT)]
    if workload.access.closed and len(with_identity) == len(workload.access.grants):
        yield _omission(pod, OmissionReason.ACCESS, _CLOSED)
    for origin in dict.fromkeys(grant.origin for grant in with_identity):
        yield _omission(Place(origin, ""), OmissionReason.ACCESS, _GRANT)


def _omission(place: Place, reason: OmissionReason, message: str) -> Omission:
    return Omission(origin=place.origin, where=place.where, what="", reason=reason, message=message)
